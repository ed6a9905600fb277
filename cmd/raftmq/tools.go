package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

const defaultNameServer = "127.0.0.1:9876"

// toolFlags are common to the commands that talk to a cluster.
type toolFlags struct {
	nameServers string
	timeout     time.Duration
}

// register adds the flags to a command. Its values may also come from the environment.
func (f *toolFlags) register(cmd *cobra.Command, timeout time.Duration, timeoutUsage string) {
	cmd.Flags().StringVarP(&f.nameServers, "name-servers", "n", defaultNameServer,
		"client `addresses` of any nodes, joined by ; or ,")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, timeoutUsage)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		// RocketMQ's own variable, for people who have it set.
		if addrs := os.Getenv("NAMESRV_ADDR"); addrs != "" && os.Getenv(envName("name-servers")) == "" && !cmd.Flags().Changed("name-servers") {
			f.nameServers = addrs
		}
		if err := fillFlags(cmd.Flags(), ""); err != nil {
			return err
		}
		if f.timeout < 0 {
			return flagError{"timeout", f.timeout, "allowed are durations of 0 and more"}
		}
		_, err := f.addresses()
		return err
	}
}

// addresses lists the name servers.
func (f *toolFlags) addresses() ([]string, error) {
	var list []string
	for _, a := range strings.FieldsFunc(f.nameServers, func(r rune) bool { return r == ';' || r == ',' || r == ' ' }) {
		if _, err := checkAddress(a); err != nil {
			return nil, flagError{"name-servers", a, err.Error()}
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, flagError{"name-servers", f.nameServers, "allowed are addresses host:port, joined by ; or ,"}
	}
	return list, nil
}

// checkName refuses a topic's or group's name that no broker takes.
func checkName(name string, limit int) error {
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("%|_-", c) >= 0) {
			return errors.New("allowed are letters, digits and % | _ -")
		}
	}
	if len(name) > limit {
		return fmt.Errorf("allowed are %d characters, it has %d", limit, len(name))
	}
	return nil
}

// connect returns the cluster behind the name servers; nothing is contacted yet.
func (f *toolFlags) connect() (*client.Cluster, error) {
	addrs, err := f.addresses()
	if err != nil {
		return nil, err
	}
	return client.NewCluster(addrs), nil
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM; the next one has its
// usual effect.
func untilSignal(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, cancel)
	return ctx, cancel
}

// invoked turns an answer with a code other than 0 into an error, and says which request failed.
func invoked(what string, resp *remoting.Command, err error) (*remoting.Command, error) {
	if err == nil && resp.Code != remoting.ResponseSuccess {
		err = &client.ResponseError{Code: resp.Code, Remark: resp.Remark}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, plainError(err))
	}
	return resp, nil
}

// plainError puts a refusal into words for people: the code's name and the broker's remark.
func plainError(err error) error {
	var refused *client.ResponseError
	if !errors.As(err, &refused) {
		return err
	}
	remark, _, _ := strings.Cut(refused.Remark, "\n")
	return &answerError{code: refused.Code, remark: strings.TrimSpace(remark)}
}

// answerError is an answer with a code other than 0.
type answerError struct {
	code   int32
	remark string
}

func (e *answerError) Error() string {
	s := fmt.Sprintf("%s (code %d)", remoting.ResponseCodeName(e.code), e.code)
	if e.remark != "" {
		s += ": " + e.remark
	}
	return s
}

// answeredWith reports whether err is an answer of this code.
func answeredWith(err error, code int32) bool {
	var answer *answerError
	var refused *client.ResponseError
	switch {
	case errors.As(err, &answer):
		return answer.code == code
	case errors.As(err, &refused):
		return refused.Code == code
	}
	return false
}
