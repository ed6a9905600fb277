package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// newRegistry holds the Go runtime's, the process's and the parts' figures.
func newRegistry(namespace string, ms []Metric) (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	cs := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	for _, m := range ms {
		c, err := m.collector(namespace)
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	for i, c := range cs {
		if err := r.Register(c); err != nil {
			if own := i - (len(cs) - len(ms)); own >= 0 {
				return nil, fmt.Errorf("metrics: register %s: %w", ms[own].Name, err)
			}
			return nil, fmt.Errorf("metrics: register: %w", err)
		}
	}
	return r, nil
}

func (m Metric) collector(namespace string) (prometheus.Collector, error) {
	if m.Value == nil {
		return nil, fmt.Errorf("metrics: %s has no value function", m.Name)
	}
	switch m.Kind {
	case Gauge:
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Value), nil
	case Counter:
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: m.Name, Help: m.Help, ConstLabels: m.Labels}, m.Value), nil
	}
	return nil, fmt.Errorf("metrics: %s is of unknown kind %d", m.Name, m.Kind)
}
