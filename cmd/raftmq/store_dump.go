package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"raftmq/commitlog/inspect"
	"raftmq/commitlog/record"
)

// dumpFlags choose what is printed.
type dumpFlags struct {
	storeFlags
	what     string
	topic    string
	queue    int32
	from, to int64
	limit    int64
	body     string
}

func newStoreDumpCommand() *cobra.Command {
	var flags dumpFlags
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print what is in a store",
		Long: `Prints the records of the commit log, or with --what another part: the units of consume queues, the
entries of the key index, the checkpoint, the configuration files, or RaftMQ's journal. Places that
are damaged are passed over and told on standard error; "store verify" says more about them.`,
		Example: `  raftmq store dump /root/store --topic TopicTest --queue 0 --limit 5 --body text
  raftmq store dump /root/store --json --from 1073741824 | jq .msgId
  raftmq store dump /root/store --what queues --topic TopicTest
  raftmq store dump /root/store --what config`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			return unreadable(flags.run(cmd, args[0]))
		},
	}
	flags.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&flags.what, "what", "records", "records, queues, index, checkpoint, config or journal")
	fs.StringVarP(&flags.topic, "topic", "t", "", "only this `topic` (records, queues)")
	fs.Int32Var(&flags.queue, "queue", -1, "only this queue `id` (records, queues)")
	fs.Int64Var(&flags.from, "from", 0, "only from this physical `offset` on")
	fs.Int64Var(&flags.to, "to", 0, "only below this physical `offset`")
	fs.Int64Var(&flags.limit, "limit", 0, "at most so many lines (default all)")
	fs.StringVar(&flags.body, "body", "none", "bodies of records: none, text or hex")
	return cmd
}

func (f *dumpFlags) run(cmd *cobra.Command, dir string) error {
	if f.from < 0 || f.to < 0 || f.limit < 0 {
		return errors.New("--from, --to and --limit: allowed are 0 and more")
	}
	if f.body != "none" && f.body != "text" && f.body != "hex" {
		return flagError{"body", f.body, "allowed are none, text and hex"}
	}
	print := map[string]func(*dumper) error{"records": (*dumper).records, "queues": (*dumper).queues, "index": (*dumper).index,
		"checkpoint": (*dumper).checkpoint, "config": (*dumper).config, "journal": (*dumper).journal}[f.what]
	if print == nil {
		return flagError{"what", f.what, "allowed are records, queues, index, checkpoint, config and journal"}
	}
	s, err := f.open(cmd, dir, "dump")
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	d := &dumper{dumpFlags: f, s: s, out: w, notes: cmd.ErrOrStderr(), enc: json.NewEncoder(w), rows: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	d.enc.SetEscapeHTML(false)
	return errors.Join(print(d), d.rows.Flush(), w.Flush())
}

// dumper prints one part of a store.
type dumper struct {
	*dumpFlags
	s     *inspect.Store
	out   *bufio.Writer
	notes io.Writer
	enc   *json.Encoder
	rows  *tabwriter.Writer
	n     int64
}

// rowBlock is how many rows are aligned with each other: a table of a whole log does not fit memory.
const rowBlock = 500

// row prints one line of a table.
func (d *dumper) row(columns ...any) error {
	for i, c := range columns {
		if i > 0 {
			fmt.Fprint(d.rows, "\t")
		}
		fmt.Fprint(d.rows, c)
	}
	if _, err := fmt.Fprintln(d.rows); err != nil {
		return err
	}
	if d.n++; d.n%rowBlock == 0 {
		return d.rows.Flush()
	}
	return nil
}

func (d *dumper) queueID() *int32 {
	if d.queue < 0 {
		return nil
	}
	return &d.queue
}

// note tells on standard error what could not be printed.
func (d *dumper) note(f inspect.Finding) {
	if !d.quiet {
		fmt.Fprintf(d.notes, "raftmq: %s\n", f.String())
	}
}

// recordLine is a record as JSON.
type recordLine struct {
	Topic                     string            `json:"topic"`
	QueueID                   int32             `json:"queueId"`
	QueueOffset               int64             `json:"queueOffset"`
	CommitLogOffset           int64             `json:"commitLogOffset"`
	Size                      int               `json:"size"`
	Magic                     string            `json:"magic"`
	MsgID                     string            `json:"msgId"`
	UniqKey                   *string           `json:"uniqKey"`
	Tags                      *string           `json:"tags"`
	TagsHash                  int64             `json:"tagsHash"`
	Keys                      *string           `json:"keys"`
	Flag                      int32             `json:"flag"`
	SysFlag                   int32             `json:"sysFlag"`
	BornTimestamp             int64             `json:"bornTimestamp"`
	BornHost                  string            `json:"bornHost"`
	StoreTimestamp            int64             `json:"storeTimestamp"`
	StoreHost                 string            `json:"storeHost"`
	ReconsumeTimes            int32             `json:"reconsumeTimes"`
	PreparedTransactionOffset int64             `json:"preparedTransactionOffset"`
	BodyCRC                   uint32            `json:"bodyCRC"`
	BodyLength                int               `json:"bodyLength"`
	Properties                map[string]string `json:"properties"`
	Body                      *string           `json:"body,omitempty"`
	BodyBase64                []byte            `json:"bodyBase64,omitempty"` // of a body that is no UTF-8, with --body text
	BodyHex                   string            `json:"bodyHex,omitempty"`
	File                      string            `json:"file"`
	Offset                    int64             `json:"offset"`
	Damage                    string            `json:"damage,omitempty"`
}

func newRecordLine(r *inspect.Record, body string) *recordLine {
	l := &recordLine{Topic: string(r.Topic), QueueID: r.QueueID, QueueOffset: r.QueueOffset, CommitLogOffset: r.PhyOffset, Size: r.Size,
		Magic: fmt.Sprintf("%08X", r.Magic), MsgID: string(record.AppendMessageID(nil, r.StoreHost, r.PhyOffset)), TagsHash: record.TagsCode(r.Properties),
		UniqKey: property(r, record.PropertyUniqKey), Tags: property(r, record.PropertyTags), Keys: property(r, record.PropertyKeys),
		Flag: r.Flag, SysFlag: r.SysFlag, BornTimestamp: r.BornTimestamp, BornHost: r.BornHost.String(), StoreTimestamp: r.StoreTimestamp,
		StoreHost: r.StoreHost.String(), ReconsumeTimes: r.ReconsumeTimes, PreparedTransactionOffset: r.PreparedTransactionOffset,
		BodyCRC: r.BodyCRC, BodyLength: len(r.Body), Properties: map[string]string{}, File: r.File, Offset: r.Offset, Damage: string(r.Damage)}
	record.RangeProperties(r.Properties, func(name, value []byte) bool {
		l.Properties[string(name)] = string(value)
		return true
	})
	switch {
	case body == "hex":
		l.BodyHex = hex.EncodeToString(r.Body)
	case body == "text" && utf8.Valid(r.Body):
		text := string(r.Body)
		l.Body = &text
	case body == "text":
		l.BodyBase64 = bytes.Clone(r.Body)
	}
	return l
}

func property(r *inspect.Record, name string) *string {
	v, ok := record.Property(r.Properties, name)
	if !ok {
		return nil
	}
	text := string(v)
	return &text
}

func (d *dumper) records() error {
	f := inspect.RecordFilter{Topic: d.topic, QueueID: d.queueID(), From: d.from, To: d.to, Limit: d.limit}
	if !d.asJSON {
		if err := d.row("OFFSET", "SIZE", "TOPIC", "QUEUE", "QUEUE OFFSET", "STORED", "TAGS", "KEYS", "FLAGS", "BODY"); err != nil {
			return err
		}
	}
	return d.s.Records(f, func(r *inspect.Record) error {
		if d.asJSON {
			return d.enc.Encode(newRecordLine(r, d.body))
		}
		tags, _ := record.Property(r.Properties, record.PropertyTags)
		keys, _ := record.Property(r.Properties, record.PropertyKeys)
		err := d.row(r.PhyOffset, r.Size, printable(r.Topic), r.QueueID, r.QueueOffset, storeTime(r.StoreTimestamp), printable(tags), printable(keys),
			sysFlags(r.SysFlag), len(r.Body))
		if err != nil || d.body == "none" {
			return err
		}
		if err := d.rows.Flush(); err != nil {
			return err
		}
		return d.writeBody(r.Body)
	}, d.note)
}

// writeBody prints a body below its row.
func (d *dumper) writeBody(body []byte) error {
	if d.body == "text" {
		_, err := fmt.Fprintf(d.out, "    %s\n", printable(body))
		return err
	}
	for line := range strings.Lines(hex.Dump(body)) {
		if _, err := fmt.Fprintf(d.out, "    %s", line); err != nil {
			return err
		}
	}
	return nil
}

// printable is text with control characters escaped, so that it stays in its line and column.
func printable(b []byte) string {
	quoted := strconv.Quote(string(b))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// storeTime is a time in the local zone, as RocketMQ's tools print it.
func storeTime(millis int64) string {
	return time.UnixMilli(millis).Format("2006-01-02 15:04:05.000")
}

// sysFlags names the bits that say what a record is.
func sysFlags(flag int32) string {
	var names []string
	switch record.TransactionType(flag) {
	case record.SysFlagPrepared:
		names = append(names, "prepared")
	case record.SysFlagCommit:
		names = append(names, "commit")
	case record.SysFlagRollback:
		names = append(names, "rollback")
	}
	if flag&record.SysFlagCompressed != 0 {
		names = append(names, "compressed")
	}
	if flag&record.SysFlagMultiTags != 0 {
		names = append(names, "multi-tags")
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ",")
}
