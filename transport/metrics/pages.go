package metrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const indexPage = `/metrics        Prometheus metrics
/health/live    200 while the process is well
/health/ready   200 while it can serve clients
/health/leader  200 while it leads and takes writes
/v1/status      what this node is and how it is doing, as JSON
/debug/pprof/   profiles
`

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{
		// One bad figure must not hide the others.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      promLogger{s},
	}))
	mux.HandleFunc("GET /health/live", health("live", s.cfg.Live))
	mux.HandleFunc("GET /health/ready", health("ready", s.cfg.Ready))
	mux.HandleFunc("GET /health/leader", health("leader", s.cfg.Leader))
	if s.cfg.Status != nil {
		mux.HandleFunc("GET /v1/status", s.status)
	}
	if !s.cfg.NoPprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, indexPage)
	})
	return mux
}

// healthAnswer is the one-line body of the health pages.
type healthAnswer struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

func health(name string, check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		a, code := healthAnswer{Check: name, OK: true}, http.StatusOK
		if check != nil {
			if err := check(); err != nil {
				a.OK, a.Reason, code = false, err.Error(), http.StatusServiceUnavailable
			}
		}
		writeJSON(w, code, a)
	}
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.cfg.Status())
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// A client that went away is no matter of ours.
	_, _ = w.Write(append(b, '\n'))
}

// promLogger brings promhttp's complaints to our log.
type promLogger struct{ s *Server }

func (l promLogger) Println(v ...any) {
	l.s.cfg.Logger.Warn("cannot gather metrics", "error", fmt.Sprint(v...))
}
