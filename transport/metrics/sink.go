package metrics

import (
	"fmt"

	gometrics "github.com/hashicorp/go-metrics"
	promsink "github.com/hashicorp/go-metrics/prometheus"
	"github.com/prometheus/client_golang/prometheus"
)

// sink is the go-metrics instance of this server. raft and memberlist (both on
// hashicorp/go-metrics) write to that library's process-wide default, so the newest server of
// a process gets their figures; this is the only global that the package touches.
type sink struct{ installed *gometrics.Metrics }

func installSink(namespace string, registry prometheus.Registerer) (*sink, error) {
	s, err := promsink.NewPrometheusSinkFrom(promsink.PrometheusOpts{
		// Never expire: the key set is bounded by the code and the peers, and a counter
		// that vanishes and starts again at zero looks like a restart.
		Expiration: 0,
		Registerer: registry,
		Name:       namespace + "_go_metrics",
	})
	if err != nil {
		return nil, fmt.Errorf("metrics: register go-metrics sink: %w", err)
	}
	cfg := gometrics.DefaultConfig(namespace)
	cfg.EnableHostname = false
	cfg.EnableRuntimeMetrics = false // the Go collector has them, and this starts a goroutine that never ends
	m, err := gometrics.NewGlobal(cfg, s)
	if err != nil {
		return nil, fmt.Errorf("metrics: install go-metrics sink: %w", err)
	}
	return &sink{installed: m}, nil
}

// uninstall puts the blackhole back, unless a later server has taken over.
func (s *sink) uninstall() {
	if gometrics.Default() != s.installed {
		return
	}
	cfg := gometrics.DefaultConfig("")
	cfg.EnableRuntimeMetrics = false
	// The error is always nil: nothing is opened.
	_, _ = gometrics.NewGlobal(cfg, &gometrics.BlackholeSink{})
}
