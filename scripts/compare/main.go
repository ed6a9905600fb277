// Command compare sends one scripted sequence of requests to a RocketMQ 4.9.4 and to a RaftMQ and prints where the answers
// differ: code, remark, ext fields, body and the records that are stored, times, hosts, ids and log positions apart.
// scripts/compare-rocketmq starts both.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

func main() {
	theirs := target{who: "RocketMQ"}
	ours := target{who: "RaftMQ"}
	flag.StringVar(&theirs.broker, "rocketmq", "", "`address` of a RocketMQ 4.9.4 broker of cluster PeerCluster, named peer-a, that is new")
	flag.StringVar(&theirs.names, "rocketmq-names", "", "`address` of its name server")
	flag.StringVar(&ours.broker, "raftmq", "", "client `address` of a leader of a cluster called so too, new too")
	flag.StringVar(&theirs.store, "rocketmq-store", "", "RocketMQ's store `folder`; with -raftmq-store: stored records are compared too")
	flag.StringVar(&ours.store, "raftmq-store", "", "RaftMQ's data `folder`")
	verbose := flag.Bool("v", false, "print equal answers too")
	flag.Parse()
	ours.names = ours.broker
	if theirs.broker == "" || theirs.names == "" || ours.broker == "" {
		flag.Usage()
		os.Exit(2)
	}
	good, err := compare(&theirs, &ours, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	if theirs.store != "" && ours.store != "" {
		same, err := compareStores(theirs.store, ours.store)
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(1)
		}
		good = good && same
	}
	if !good {
		os.Exit(1)
	}
}

// target is one of the two, and what it has answered so far.
type target struct {
	who           string
	broker, names string
	store         string // its folder, if that is to be read
	conns         map[string]*client.Client
	noted         map[string]string // what later requests take from earlier answers
}

func (t *target) close() {
	for _, c := range t.conns {
		_ = c.Close()
	}
}

// ask sends the request of a step, with what {name} stands for filled in.
func (t *target) ask(s *step) (*remoting.Command, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	address := t.broker
	if s.names {
		address = t.names
	}
	key := address + s.conn
	c := t.conns[key]
	if c == nil {
		var err error
		if c, err = client.Dial(ctx, address); err != nil {
			return nil, fmt.Errorf("%s: %w", t.who, err)
		}
		if t.conns == nil {
			t.conns, t.noted = map[string]*client.Client{}, map[string]string{}
		}
		t.conns[key] = c
	}
	cmd := &remoting.Command{Code: s.code, Language: remoting.LanguageJava, Version: remoting.Version4_9_4, Body: []byte(t.fill(s.body))}
	for i := 0; i+1 < len(s.ext); i += 2 {
		cmd.Set(s.ext[i], t.fill(s.ext[i+1]))
	}
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", t.who, s.name, err)
	}
	for _, field := range s.note {
		value := resp.GetString(field)
		t.noted[s.name+"."+field] = value
		if _, offset, err := record.ParseMessageID(value); field == "msgId" && err == nil {
			t.noted[s.name+".position"] = strconv.FormatInt(offset, 10)
		}
	}
	return resp, nil
}

func (t *target) fill(text string) string {
	for name, value := range t.noted {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// settle is how long an answer may take to become what its step waits for.
const settle = 5 * time.Second

func compare(theirs, ours *target, verbose bool) (good bool, err error) {
	defer theirs.close()
	defer ours.close()
	same, listed, wrong := 0, 0, 0
	used := map[string]bool{}
	for i := range steps {
		s := &steps[i]
		want, err := theirs.settled(s)
		if err != nil {
			return false, err
		}
		got, err := ours.settled(s)
		if err != nil {
			return false, err
		}
		diff := difference(want, got)
		reason, known := differences[s.name]
		used[s.name] = true
		switch {
		case diff == "" && known:
			wrong++
			fmt.Printf("%s: no difference any more; it is listed as: %s\n", s.name, reason)
		case diff == "":
			same++
			if verbose {
				fmt.Printf("%s: %s\n", s.name, want[0])
			}
		case known:
			listed++
			fmt.Printf("%s: differs as listed: %s\n%s", s.name, reason, diff)
		default:
			wrong++
			fmt.Printf("%s: DIFFERS\n%s", s.name, diff)
		}
	}
	for name := range differences {
		if !used[name] {
			return false, fmt.Errorf("the difference %q names no step", name)
		}
	}
	fmt.Printf("%d answers are the same, %d differ as listed, %d differ\n", same, listed, wrong)
	return wrong == 0, nil
}

// settled asks, and again while the answer is not what the step waits for: consume queues and committed offsets follow.
func (t *target) settled(s *step) ([]string, error) {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		resp, err := t.ask(s)
		if err != nil {
			return nil, err
		}
		if s.until == nil || s.until(resp) || time.Since(begin) > settle {
			return normal(s.code, resp), nil
		}
	}
}

// difference is a line for each that only one of them has; "" when there is none.
func difference(want, got []string) string {
	var b strings.Builder
	for _, line := range want {
		if !slices.Contains(got, line) {
			fmt.Fprintf(&b, "  - %s\n", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			fmt.Fprintf(&b, "  + %s\n", line)
		}
	}
	return b.String()
}
