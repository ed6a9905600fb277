package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	gometrics "github.com/hashicorp/go-metrics"
)

func serve(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, s *Server, path string) (code int, body string, header http.Header) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	r, err := c.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b), r.Header
}

func TestMetricsPage(t *testing.T) {
	n := 7.0
	s := serve(t, Config{Metrics: []Metric{
		{Name: "log_max_bytes", Help: "Log end.", Value: func() float64 { return n }},
		{Name: "requests_total", Help: "Requests.", Kind: Counter, Labels: map[string]string{"port": "client"}, Value: func() float64 { return 3 }},
	}})
	// raft and memberlist write to the library's default.
	gometrics.IncrCounter([]string{"raft", "apply"}, 5)
	gometrics.SetGauge([]string{"raft", "leader"}, 1)
	n = 8
	code, body, _ := get(t, s, "/metrics")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{"raftmq_log_max_bytes 8\n", `raftmq_requests_total{port="client"} 3` + "\n", "raftmq_raft_apply 5\n", "raftmq_raft_leader 1\n", "go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

func TestHealth(t *testing.T) {
	bad := errors.New("no leader is known")
	var ready error
	s := serve(t, Config{Ready: func() error { return ready }, Leader: func() error { return bad }})
	for _, tt := range []struct {
		path  string
		ready error
		code  int
		body  string
	}{
		{"/health/live", nil, 200, `{"check":"live","ok":true}` + "\n"},
		{"/health/ready", nil, 200, `{"check":"ready","ok":true}` + "\n"},
		{"/health/ready", bad, 503, `{"check":"ready","ok":false,"reason":"no leader is known"}` + "\n"},
		{"/health/leader", nil, 503, `{"check":"leader","ok":false,"reason":"no leader is known"}` + "\n"},
	} {
		ready = tt.ready
		code, body, h := get(t, s, tt.path)
		if code != tt.code || body != tt.body || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %q %v", tt.path, code, body, h)
		}
	}
}

func TestStatusAndOtherPages(t *testing.T) {
	s := serve(t, Config{Status: func() any { return map[string]any{"nodeId": "n1"} }})
	code, body, _ := get(t, s, "/v1/status")
	var v map[string]string
	if err := json.Unmarshal([]byte(body), &v); code != 200 || err != nil || v["nodeId"] != "n1" {
		t.Errorf("%d %q %v", code, body, err)
	}
	for path, want := range map[string]int{"/": 200, "/nothing": 404, "/debug/pprof/": 200, "/debug/pprof/goroutine": 200, "/debug/pprof/cmdline": 200} {
		if code, _, _ := get(t, s, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	r, err := http.Post("http://"+s.Addr().String()+"/v1/status", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.StatusCode)
	}

	plain := serve(t, Config{NoPprof: true})
	for _, path := range []string{"/v1/status", "/debug/pprof/"} {
		if code, _, _ := get(t, plain, path); code != 404 {
			t.Errorf("%s where it is off: %d", path, code)
		}
	}
	unencodable := serve(t, Config{Status: func() any { return func() {} }})
	if code, body, _ := get(t, unencodable, "/v1/status"); code != 500 || !strings.Contains(body, "encode") {
		t.Errorf("status that isn't JSON: %d %q", code, body)
	}
}

func TestNewErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	m := func(name string) Metric {
		return Metric{Name: name, Help: name, Value: func() float64 { return 0 }}
	}
	for _, tt := range []struct {
		name string
		cfg  Config
		says string
	}{
		{"port in use", Config{Listen: l.Addr().String()}, l.Addr().String()},
		{"twice the same", Config{Listen: "127.0.0.1:0", Metrics: []Metric{m("a"), m("a")}}, "register a"},
		{"bad name", Config{Listen: "127.0.0.1:0", Metrics: []Metric{m("")}, Namespace: "x y"}, "register"},
		{"no value", Config{Listen: "127.0.0.1:0", Metrics: []Metric{{Name: "a"}}}, "a has no value"},
		{"no kind", Config{Listen: "127.0.0.1:0", Metrics: []Metric{{Name: "a", Kind: 9, Value: func() float64 { return 0 }}}}, "kind 9"},
	} {
		s, err := New(tt.cfg)
		if err == nil {
			s.Close()
			t.Errorf("%s: no error", tt.name)
		} else if !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// The sink is the process's: the newest server has it, and closing an older one leaves it alone.
func TestSinkGoesWithItsServer(t *testing.T) {
	before := gometrics.Default()
	a := serve(t, Config{})
	b := serve(t, Config{})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	gometrics.IncrCounter([]string{"x"}, 1)
	if _, body, _ := get(t, b, "/metrics"); !strings.Contains(body, "raftmq_x 1\n") {
		t.Error("the newer server lost its sink")
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	if m := gometrics.Default(); m == before || m == b.sink.installed {
		t.Error("the closed server's sink is still written to")
	}
	gometrics.IncrCounter([]string{"x"}, 1) // into the blackhole
}

// Close cuts what runs longer than its drain, and works without Serve.
func TestClose(t *testing.T) {
	s, err := New(Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("without Serve: %v", err)
	}
	if l, err := net.Listen("tcp", s.Addr().String()); err != nil {
		t.Errorf("the port is still taken: %v", err)
	} else {
		l.Close()
	}

	entered := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	s = serve(t, Config{Status: func() any { close(entered); <-ctx.Done(); return nil }})
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if r, err := http.Get("http://" + s.Addr().String() + "/v1/status"); err == nil {
			r.Body.Close()
		}
	}()
	<-entered
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("close took %s", d)
	}
	cancel()
	<-asked
}

// What raft and memberlist pay for one figure, against the blackhole.
func BenchmarkSink(b *testing.B) {
	s, err := New(Config{Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("sample", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			gometrics.AddSample([]string{"raft", "fsm", "apply"}, 1)
		}
	})
	b.Run("counter", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			gometrics.IncrCounter([]string{"raft", "apply"}, 1)
		}
	})
}
