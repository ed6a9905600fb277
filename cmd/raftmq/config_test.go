package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// parse runs the server command's way from arguments to a Config.
func parse(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	var c Config
	var file string
	cmd := &cobra.Command{Use: "server", SilenceErrors: true, SilenceUsage: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return loadConfig(cmd, &c, file) }}
	cmd.Flags().StringVar(&file, configFlag, "", "")
	serverFlags(cmd.Flags(), &c)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainFlagError(err) })
	if args == nil {
		args = []string{}
	}
	cmd.SetArgs(args)
	err := cmd.Execute()
	return c, err
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raftmq.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// base are flags that make every address local, so that a test does not depend on the machine.
var base = []string{"--node-id", "n1", "--client-address", "127.0.0.1:9876", "--raft-address", "127.0.0.1:9877",
	"--gossip-address", "127.0.0.1:9878", "--http-address", "127.0.0.1:9879"}

func TestEveryFieldHasItsFlag(t *testing.T) {
	var c Config
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	serverFlags(fs, &c)
	flags := map[string]bool{}
	fs.VisitAll(func(f *pflag.Flag) { flags[strings.ReplaceAll(f.Name, "-", "")] = true })
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		name := strings.ToLower(fields.Field(i).Name)
		if !fields.Field(i).IsExported() {
			continue
		}
		if !flags[name] {
			t.Errorf("field %s has no flag of its name", fields.Field(i).Name)
		}
		delete(flags, name)
	}
	for name := range flags {
		t.Errorf("flag %s has no field of its name", name)
	}
}

func TestHelpTextsAreWhole(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || !unicode.IsUpper(rune(cmd.Short[0])) || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.RunE != nil && !cmd.HasSubCommands() && cmd.Name() != "version" && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no text", cmd.CommandPath(), f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

func TestConfigDefaults(t *testing.T) {
	c, err := parse(t, base...)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		NodeID: "n1", ClusterName: "DefaultCluster", BrokerName: "raftmq-a", DataDir: c.DataDir,
		ClientAddress: "127.0.0.1:9876", RaftAddress: "127.0.0.1:9877", GossipAddress: "127.0.0.1:9878", HTTPAddress: "127.0.0.1:9879",
		ClientAdvertise: "127.0.0.1:9876", RaftAdvertise: "127.0.0.1:9877", GossipAdvertise: "127.0.0.1:9878", HTTPAdvertise: "127.0.0.1:9879",
		FlushDiskType: "ASYNC_FLUSH", MappedFileSizeCommitLog: 1 << 30, MappedFileSizeConsumeQueue: 6_000_000, MaxMappedSegments: 128, TransientStorePoolSize: 5,
		FlushIntervalCommitLog: 500 * time.Millisecond, FlushCommitLogLeastPages: 4, FlushCommitLogThoroughInterval: 10 * time.Second,
		SyncFlushTimeout: 5 * time.Second, OSPageCacheBusyTimeout: time.Second,
		CommitIntervalCommitLog: 200 * time.Millisecond, CommitCommitLogLeastPages: 4, CommitCommitLogThoroughInterval: 200 * time.Millisecond,
		AccessMessageInMemoryMaxRatio: 40, MaxTransferBytesOnMessageInMemory: 262144, MaxTransferCountOnMessageInMemory: 32,
		MaxTransferBytesOnMessageInDisk: 65536, MaxTransferCountOnMessageInDisk: 8,
		MessageIndexEnable: true, MaxHashSlotNum: 5_000_000, MaxIndexNum: 20_000_000,
		FileReservedTime: 72 * time.Hour, CleanResourceInterval: 10 * time.Second, DeleteWhen: "04", DiskMaxUsedSpaceRatio: 75, DiskSpaceCleanForciblyRatio: 85, CleanFileForciblyEnable: true, DiskSpaceWarningLevelRatio: 90,
		RaftLogStore: "wal", RaftHeartbeatTimeout: 800 * time.Millisecond, RaftElectionTimeout: 800 * time.Millisecond, DiskStallTimeout: 5 * time.Second, ScrubRate: 16 << 20, ReplicaCheckInterval: time.Minute, RejoinWait: time.Minute,
		RaftSnapshotBytes: 128 << 20, RaftTrailingBytes: 128 << 20, MaxMessageSize: 4 << 20, HoldWrites: time.Second,
		AutoCreateTopic: true, AutoCreateGroup: true, DefaultTopicQueues: 8,
		MessageDelayLevel: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", TransactionTimeout: 6 * time.Second, TransactionCheckInterval: time.Minute, TransactionCheckMax: 15,
		LogLevel: "info", LogFormat: "text",
		Join: c.Join,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if len(c.Join) != 0 || !filepath.IsAbs(c.DataDir) || filepath.Base(c.DataDir) != "raftmq-data" {
		t.Errorf("join %q, data dir %q", c.Join, c.DataDir)
	}
}

func TestConfigRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args string
		want []string // all are in the error
	}{
		{"--node-id=", []string{`--node-id ""`, "1 to 64 letters"}},
		{"--node-id=n/1", []string{`--node-id "n/1"`, "1 to 64 letters"}},
		{"--cluster-name=a%b", []string{`--cluster-name "a%b"`, "letters, digits"}},
		{"--cluster-name=TBW102", []string{`--cluster-name "TBW102"`, "system topic"}},
		{"--broker-name=DefaultCluster", []string{`--broker-name "DefaultCluster"`, "contradicts --cluster-name"}},
		{"--max-hash-slot-num=0", []string{"--max-hash-slot-num 0", "allowed are 1 to 100000000"}},
		{"--max-index-num=1", []string{"--max-index-num 1", "allowed are 2 to 1000000000"}},
		{"--file-reserved-time=1ms", []string{"--file-reserved-time 1ms", "allowed are 1s to"}},
		{"--file-reserved-time=72", []string{"--file-reserved-time", "72"}},
		{"--delete-when=24", []string{`--delete-when "24"`, "hours of the day"}},
		{"--delete-when=4,5", []string{`--delete-when "4,5"`, "separated by ';'"}},
		{"--disk-max-used-space-ratio=96", []string{"--disk-max-used-space-ratio 96", "10 to 95"}},
		{"--disk-space-clean-forcibly-ratio=29", []string{"--disk-space-clean-forcibly-ratio 29", "30 to 98"}},
		{"--disk-space-warning-level-ratio=99", []string{"--disk-space-warning-level-ratio 99", "35 to 98"}},
		{"--disk-space-warning-level-ratio=80", []string{"--disk-space-warning-level-ratio 80", "contradicts --disk-space-clean-forcibly-ratio 85"}},
		{"--scrub-rate=101GiB", []string{"--scrub-rate", "allowed are 0 to"}},
		{"--rejoin-wait=10ms", []string{"--rejoin-wait 10ms", "allowed are 1s to"}},
		{"--replica-check-interval=10ms", []string{"--replica-check-interval 10ms", "allowed are 1s to"}},
		{"--data-dir=", []string{`--data-dir ""`, "folder"}},
		{"--data-dir=" + file, []string{"--data-dir", file, "is a file"}},
		{"--log-level=loud", []string{`--log-level "loud"`, "trace, debug, info, warn and error"}},
		{"--log-format=xml", []string{`--log-format "xml"`, "text and json"}},
		{"--client-address=9876", []string{`--client-address "9876"`, "host:port"}},
		{"--client-address=127.0.0.1:0", []string{`--client-address "127.0.0.1:0"`, "1 to 65535"}},
		{"--client-address=127.0.0.1:http", []string{`--client-address "127.0.0.1:http"`, "1 to 65535"}},
		{"--http-address=:9876", []string{`--http-address ":9876"`, `contradicts --client-address "127.0.0.1:9876"`}},
		{"--raft-address=127.0.0.1:9876", []string{`--raft-address "127.0.0.1:9876"`, `contradicts --client-address`}},
		{"--advertise-host=0.0.0.0", []string{`--advertise-host "0.0.0.0"`, "that others can reach"}},
		{"--advertise-host=broker.example", []string{`--advertise-host "broker.example"`, "not a name"}},
		{"--client-advertise=0.0.0.0:9876", []string{`--client-advertise "0.0.0.0:9876"`, "that others can reach"}},
		{"--client-advertise=[::]:9876", []string{`--client-advertise "[::]:9876"`, "that others can reach"}},
		{"--client-advertise=broker.example:9876", []string{`--client-advertise "broker.example:9876"`, "not a name"}},
		{"--client-advertise=[fe80::1%eth0]:9876", []string{"--client-advertise", "without a zone"}},
		{"--client-advertise=10.0.0.1", []string{`--client-advertise "10.0.0.1"`, "host:port"}},
		{"--gossip-advertise=broker.example:9878", []string{`--gossip-advertise "broker.example:9878"`, "not a name"}},
		{"--raft-advertise=:9877", []string{`--raft-advertise ":9877"`, "that others can reach"}},
		{"--raft-advertise=127.0.0.1:9876", []string{`--raft-advertise "127.0.0.1:9876"`, "contradicts --client-advertise"}},
		{"--join=n2", []string{`--join "n2"`, "host:port"}},
		{"--join=127.0.0.1:1,127.0.0.1:x", []string{`--join "127.0.0.1:x"`, "1 to 65535"}},
		{"--bootstrap-expect=-1", []string{"--bootstrap-expect -1", "0 to 9"}},
		{"--bootstrap-expect=10", []string{"--bootstrap-expect 10", "0 to 9"}},
		{"--bootstrap-expect=three", []string{"--bootstrap-expect", "three"}},
		{"--bootstrap-expect=1 --join=127.0.0.1:9888", []string{"--bootstrap-expect 1", "contradicts --join 127.0.0.1:9888"}},
		{"--flush-disk-type=sync", []string{`--flush-disk-type "sync"`, "ASYNC_FLUSH and SYNC_FLUSH"}},
		{"--mapped-file-size-commit-log=64KB", []string{"--mapped-file-size-commit-log", `"64KB"`, "KiB, MiB or GiB"}},
		{"--mapped-file-size-commit-log=32KiB", []string{`--mapped-file-size-commit-log "32KiB"`, "multiples of 4096 from 64KiB to 4GiB"}},
		{"--mapped-file-size-commit-log=100000", []string{`--mapped-file-size-commit-log "100000"`, "multiples of 4096"}},
		{"--mapped-file-size-commit-log=8GiB", []string{`--mapped-file-size-commit-log "8GiB"`, "to 4GiB"}},
		{"--unsafe-raft-sync-interval=1h", []string{"--unsafe-raft-sync-interval 1h0m0s", "1ms to 1m0s"}},
		{"--unsafe-raft-sync-interval=1s --raft-log-store=bolt", []string{"--unsafe-raft-sync-interval 1s", "contradicts --raft-log-store bolt"}},
		{"--enable-consume-queue-ext", []string{"--enable-consume-queue-ext true", "allowed is false", "SQL92"}},
		{"--transient-store-pool-enable --flush-disk-type=SYNC_FLUSH", []string{"--transient-store-pool-enable true", "contradicts --flush-disk-type SYNC_FLUSH"}},
		{"--transient-store-pool-size=0", []string{"--transient-store-pool-size 0", "1 to 64"}},
		{"--flush-interval-commit-log=2m", []string{"--flush-interval-commit-log 2m0s", "1ms to 1m0s"}},
		{"--flush-commit-log-least-pages=-1", []string{"--flush-commit-log-least-pages -1", "0 to"}},
		{"--flush-commit-log-thorough-interval=1h", []string{"--flush-commit-log-thorough-interval 1h0m0s", "1ms to 10m0s"}},
		{"--sync-flush-timeout=1ms", []string{"--sync-flush-timeout 1ms", "10ms to 1m0s"}},
		{"--os-page-cache-busy-timeout=2m", []string{"--os-page-cache-busy-timeout 2m0s", "10ms to 1m0s"}},
		{"--commit-interval-commit-log=2m", []string{"--commit-interval-commit-log 2m0s", "1ms to 1m0s"}},
		{"--commit-commit-log-least-pages=-1", []string{"--commit-commit-log-least-pages -1", "0 to"}},
		{"--access-message-in-memory-max-ratio=101", []string{"--access-message-in-memory-max-ratio 101", "0 to 100"}},
		{"--max-transfer-bytes-on-message-in-memory=9MiB", []string{`--max-transfer-bytes-on-message-in-memory "9MiB"`, "1 to 8MiB"}},
		{"--max-transfer-count-on-message-in-disk=0", []string{"--max-transfer-count-on-message-in-disk 0", "1 to 1024"}},
		{"--bootstrap-expect=x", []string{`--bootstrap-expect "x": allowed is a whole number`}},
		{"--transaction-timeout=x", []string{`--transaction-timeout "x": allowed is a number with a unit`}},
		{"--max-mapped-segments=99999999999999999999", []string{"is out of range, allowed is a whole number"}},
		{"--max-mapped-segments=3", []string{"--max-mapped-segments 3", "4 to 30000"}},
		{"--mapped-file-size-consume-queue=20", []string{`--mapped-file-size-consume-queue "20"`, "2000 to 1GiB"}},
		{"--max-message-size=20MiB", []string{`--max-message-size "20MiB"`, "1KiB to 7MiB"}},
		{"--max-message-size=1", []string{`--max-message-size "1"`, "1KiB to 7MiB"}},
		{"--max-message-size=4MiB --mapped-file-size-commit-log=1MiB", []string{`--max-message-size "4MiB"`, "contradicts --mapped-file-size-commit-log 1MiB", "at most 991KiB"}},
		{"--raft-log-store=rocksdb", []string{`--raft-log-store "rocksdb"`, "wal and bolt"}},
		{"--raft-heartbeat-timeout=1ms", []string{"--raft-heartbeat-timeout 1ms", "50ms to 1m0s"}},
		{"--raft-election-timeout=2h", []string{"--raft-election-timeout 2h0m0s", "50ms to 1m0s"}},
		{"--raft-election-timeout=5", []string{"--raft-election-timeout", "5"}},
		{"--raft-heartbeat-timeout=2s --raft-election-timeout=1s", []string{"--raft-election-timeout 1s", "contradicts --raft-heartbeat-timeout 2s"}},
		{"--raft-snapshot-bytes=1KiB", []string{`--raft-snapshot-bytes "1KiB"`, "1MiB to 64GiB"}},
		{"--raft-trailing-bytes=100GiB", []string{`--raft-trailing-bytes "100GiB"`, "0 to 64GiB"}},
		{"--leader-address=nowhere", []string{`--leader-address "nowhere"`, "host:port"}},
		{"--leader-address=lb:x", []string{`--leader-address "lb:x"`, "host:port"}},
		{"--leader-address=:9876", []string{`--leader-address ":9876"`, "host:port"}},
		{"--hold-writes=5s", []string{"--hold-writes 5s", "0s to 2.5s"}},
		{"--default-topic-queues=0", []string{"--default-topic-queues 0", "1 to 1024"}},
		{"--message-delay-level=2w", []string{"--message-delay-level \"2w\"", "level 1", "s, m, h or d"}},
		{"--transaction-timeout=10ms", []string{"--transaction-timeout 10ms", "100ms to 24h"}},
		{"--transaction-check-interval=25h", []string{"--transaction-check-interval 25h", "100ms to 24h"}},
		{"--transaction-check-max=0", []string{"--transaction-check-max 0", "1 to 1000"}},
		{"--auto-create-topic=maybe", []string{"--auto-create-topic", "maybe"}},
		{"--no-such-flag=1", []string{"no-such-flag"}},
		// All that is wrong is told at once.
		{"--log-level=loud --hold-writes=5s", []string{"--log-level", "--hold-writes"}},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			_, err := parse(t, append(append([]string{}, base...), strings.Fields(test.args)...)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// TestFlagTexts: every command says in plain words what a flag's value may be.
func TestFlagTexts(t *testing.T) {
	for args, want := range map[string]string{
		"server --bootstrap-expect x":                  `--bootstrap-expect "x": allowed is a whole number`,
		"bench --connections 1.5":                      `--connections "1.5": allowed is a whole number`,
		"topic create a --queues 99999999999999999999": `--queues "99999999999999999999": is out of range, allowed is a whole number`,
		"cluster verify --wait 3":                      `--wait "3": allowed is a number with a unit, such as 500ms, 30s, 5m or 72h`,
		"cluster verify --last many":                   `--last "many": is no size: allowed are bytes`,
		"store dump d --limit x":                       `--limit "x": allowed is a whole number`,
		"server --auto-create-topic=maybe":             `--auto-create-topic "maybe": allowed are true and false`,
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestConfigAccepts(t *testing.T) {
	tests := []struct {
		args  string
		check func(c *Config) bool
	}{
		{"--mapped-file-size-commit-log=64KiB", func(c *Config) bool { return c.MappedFileSizeCommitLog == 65536 && c.MaxMessageSize == 31<<10 }},
		{"--mapped-file-size-commit-log=1MiB --max-message-size=512KiB", func(c *Config) bool { return c.MaxMessageSize == 512<<10 }},
		{"--join=127.0.0.1:1,127.0.0.1:2 --join=[::1]:3", func(c *Config) bool { return len(c.Join) == 3 && c.Join[2] == "[::1]:3" }},
		{"--advertise-host=10.1.2.3", func(c *Config) bool {
			return c.ClientAdvertise == "10.1.2.3:9876" && c.HTTPAdvertise == "10.1.2.3:9879"
		}},
		{"--advertise-host=2001:db8::1 --client-advertise=10.1.2.3:80", func(c *Config) bool {
			return c.ClientAdvertise == "10.1.2.3:80" && c.RaftAdvertise == "[2001:db8::1]:9877"
		}},
		{"--raft-advertise=peer.example:9877 --http-advertise=www.example:80", func(c *Config) bool { return c.RaftAdvertise == "peer.example:9877" }},
		{"--client-address=[::1]:9876", func(c *Config) bool { return c.ClientAdvertise == "[::1]:9876" }},
		{"--client-address=localhost:9876", func(c *Config) bool {
			return c.ClientAdvertise == "127.0.0.1:9876" || c.ClientAdvertise == "[::1]:9876"
		}},
		// The same port of another interface is another listener.
		{"--raft-address=127.0.0.2:9876", func(c *Config) bool { return c.RaftAdvertise == "127.0.0.2:9876" }},
		{"--bootstrap-expect=3 --join=127.0.0.1:1", func(c *Config) bool { return c.BootstrapExpect == 3 }},
		{"--flush-disk-type=SYNC_FLUSH --raft-log-store=bolt --hold-writes=0s --auto-create-topic=false", func(c *Config) bool {
			return c.FlushDiskType == syncFlush && c.RaftLogStore == raftLogBolt && c.HoldWrites == 0 && !c.AutoCreateTopic
		}},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			c, err := parse(t, append(append([]string{}, base...), strings.Fields(test.args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if !test.check(&c) {
				t.Errorf("%+v", c)
			}
		})
	}
}

func TestAdvertiseOfAWildcardListener(t *testing.T) {
	c, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	host, err := checkAddress(c.ClientAdvertise)
	if err == nil {
		err = checkReachable(host, true)
	}
	if err != nil || !strings.HasSuffix(c.ClientAdvertise, ":9876") {
		t.Errorf("0.0.0.0:9876 is advertised as %q: %v", c.ClientAdvertise, err)
	}
}

func TestConfigSources(t *testing.T) {
	file := writeFile(t, `
node-id: from-file
cluster-name: from-file
broker-name: from-file-b
join: [127.0.0.1:1, "127.0.0.1:2"]
bootstrap-expect: 3
mapped-file-size-commit-log: 64MiB
max-message-size: 1048576
auto-create-topic: false
hold-writes: 250ms
`)
	t.Setenv("RAFTMQ_CLUSTER_NAME", "from-env")
	t.Setenv("RAFTMQ_BROKER_NAME", "from-env-b")
	t.Setenv("RAFTMQ_RAFT_LOG_STORE", "bolt")
	c, err := parse(t, "--config", file, "--broker-name", "from-flag")
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeID != "from-file" || c.ClusterName != "from-env" || c.BrokerName != "from-flag" || c.RaftLogStore != "bolt" {
		t.Errorf("precedence: %+v", c)
	}
	if len(c.Join) != 2 || c.Join[1] != "127.0.0.1:2" || c.BootstrapExpect != 3 || c.MappedFileSizeCommitLog != 64<<20 || c.MaxMessageSize != 1<<20 ||
		c.AutoCreateTopic || c.HoldWrites != 250*time.Millisecond {
		t.Errorf("values of the file: %+v", c)
	}

	t.Setenv("RAFTMQ_JOIN", "127.0.0.1:7,127.0.0.1:8")
	t.Setenv("RAFTMQ_CONFIG", file)
	if c, err = parse(t); err != nil || len(c.Join) != 2 || c.Join[0] != "127.0.0.1:7" || c.NodeID != "from-file" {
		t.Errorf("join from the environment, file from RAFTMQ_CONFIG: %q, %q, %v", c.Join, c.NodeID, err)
	}
}

func TestConfigSourceErrors(t *testing.T) {
	tests := []struct {
		name, file, env string
		want            []string
	}{
		{"unknown key", "node-id: n1\nnode_id: n1\nfoo: 1\n", "", []string{`unknown key "foo"`, `"node_id" (did you mean "node-id"?)`}},
		{"nested key", "raft:\n  log-store: wal\n", "", []string{`"raft.log-store" (did you mean "raft-log-store"?)`}},
		{"config in the file", "config: x\n", "", []string{`unknown key "config"`}},
		{"help in the file", "help: true\n", "", []string{`unknown key "help"`}},
		{"no YAML", "node-id: [", "", []string{"--config"}},
		{"list for one value", "node-id: [a, b]\n", "", []string{"--node-id in file", "is a list"}},
		{"bad number", "bootstrap-expect: many\n", "", []string{"--bootstrap-expect", "many"}},
		{"bad size", "max-message-size: 4MB\n", "", []string{"--max-message-size in file", `"4MB"`}},
		{"bad value", "log-level: loud\n", "", []string{`--log-level "loud"`, "allowed are"}},
		{"bad environment", "", "RAFTMQ_HOLD_WRITES=soon", []string{"--hold-writes in environment variable RAFTMQ_HOLD_WRITES", "soon"}},
		{"list contradiction", "join: [127.0.0.1:1]\nbootstrap-expect: 1\n", "", []string{"contradicts --join 127.0.0.1:1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(test.env, "="); ok {
				t.Setenv(name, value)
			}
			_, err := parse(t, append([]string{"--config", writeFile(t, test.file)}, base[2:]...)...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
	if _, err := parse(t, "--config", "/no/such/file.yaml"); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("missing file: %v", err)
	}
}

func TestUnknownEnvironment(t *testing.T) {
	t.Setenv("RAFTMQ_NODEID", "n1")
	t.Setenv("RAFTMQ_NODE_ID", "n1")
	t.Setenv("RAFTMQ_BIN", "x")
	var c Config
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	serverFlags(fs, &c)
	if got := unknownEnvironment(fs); len(got) != 1 || got[0] != "RAFTMQ_NODEID" {
		t.Errorf("got %q", got)
	}
}

func TestCheckOrigin(t *testing.T) {
	empty, full := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "identity"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		c    Config
		ok   bool
	}{
		{"nothing to go by", Config{DataDir: empty}, false},
		{"no folder", Config{DataDir: filepath.Join(empty, "missing")}, false},
		{"data", Config{DataDir: full}, true},
		{"bootstrap", Config{DataDir: empty, BootstrapExpect: 1}, true},
		{"join", Config{DataDir: empty, Join: []string{"127.0.0.1:1"}}, true},
	}
	for _, test := range tests {
		if err := test.c.checkOrigin(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "1B": 1, "2KiB": 2048, "64mib": 64 << 20, " 1 GiB ": 1 << 30, "6000000": 6000000} {
		if n, err := parseSize(text); n != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5GiB", "1KB", "1M", "99999999999GiB", "9223372036854775808"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1KiB", 6000000: "6000000", 64 << 20: "64MiB", 1 << 30: "1GiB"} {
		if got := formatSize(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
	}
}
