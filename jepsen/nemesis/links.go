package nemesis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"raftmq/jepsen/cluster"
)

// mend undoes all cuts.
func mend(c *cluster.Cluster) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return "", cluster.Heal(c.Network(), len(c.Nodes())) }
}

// link is one direction between two nodes.
type link struct{ from, to *cluster.Node }

// cut cuts links and makes sure that each was open before and is silent now.
func cut(ctx context.Context, s *site, links []link) (string, error) {
	open := 0
	for _, l := range links {
		if probe(ctx, s.c, l, openTimeout) == nil {
			open++
		}
	}
	for _, l := range links {
		if err := s.c.Network().Cut(l.from.Index, l.to.Index); err != nil {
			return "", err
		}
	}
	for _, l := range links {
		switch err := probe(ctx, s.c, l, silence); {
		case err == nil:
			return "", fmt.Errorf("%w: %s still reaches %s", ErrNoEffect, l.from.ID, l.to.ID)
		case !isTimeout(err):
			return "", fmt.Errorf("%w: %s gets an error from %s instead of silence: %w", ErrNoEffect, l.from.ID, l.to.ID, err)
		}
	}
	return fmt.Sprintf("of %d links one way %d connected before, none does now", len(links), open), nil
}

func between2(a, b *cluster.Node) []link { return []link{{a, b}, {b, a}} }

// isolate cuts a node off from its peers; every other time from the clients too, else they go on talking to it.
func isolate(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}, heal: mend(s.c)}
	clients := s.rng.IntN(2) == 0
	var links []link
	for _, peer := range s.nodes {
		if peer != n {
			links = append(links, between2(n, peer)...)
		}
	}
	proof, err := cut(ctx, s, links)
	what := "from peers, clients still reach it: "
	if err == nil && clients {
		what = "from peers and clients: "
		err = errors.Join(s.c.Network().Cut(n.Index, cluster.Host), s.c.Network().Cut(cluster.Host, n.Index))
	}
	w.proof = "cut off " + what + proof
	return w, err
}

// halves cuts the nodes in two.
func halves(ctx context.Context, s *site) (*wound, error) {
	minority := append([]*cluster.Node{s.target}, s.others((len(s.nodes)-1)/2-1)...)
	w := &wound{nodes: minority, heal: mend(s.c)}
	var links []link
	names := ""
	for _, a := range minority {
		names += a.ID + " "
	next:
		for _, b := range s.nodes {
			for _, m := range minority {
				if m == b {
					continue next
				}
			}
			links = append(links, between2(a, b)...)
		}
	}
	proof, err := cut(ctx, s, links)
	w.proof = names + "against the others: " + proof
	return w, err
}

// ring leaves each node its two neighbours in a random circle; of three nodes it cuts one link, since three in a circle all are
// neighbours.
func ring(ctx context.Context, s *site) (*wound, error) {
	nodes := append([]*cluster.Node{s.target}, s.others(len(s.nodes)-1)...)
	if len(nodes) < 4 {
		return partial(ctx, s)
	}
	w := &wound{nodes: nodes, heal: mend(s.c)}
	var links []link
	for i, a := range nodes {
		for j, b := range nodes {
			if d := (j - i + len(nodes)) % len(nodes); d > 1 && d < len(nodes)-1 {
				links = append(links, link{a, b})
			}
		}
	}
	proof, err := cut(ctx, s, links)
	w.proof = proof
	return w, err
}

// partial cuts the link between the target and one other node.
func partial(ctx context.Context, s *site) (*wound, error) {
	other := s.others(1)[0]
	w := &wound{nodes: []*cluster.Node{s.target, other}, heal: mend(s.c)}
	proof, err := cut(ctx, s, between2(s.target, other))
	w.proof = fmt.Sprintf("between %s and %s: %s", s.target.ID, other.ID, proof)
	return w, err
}

// oneWay makes the target mute or deaf to its peers. A connection needs both ways, so what is seen is that the node connects to nobody;
// which way is cut is known from what was asked for.
func oneWay(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}, heal: mend(s.c)}
	mute := s.rng.IntN(2) == 0
	var links []link
	for _, peer := range s.nodes {
		switch {
		case peer == n:
		case mute:
			links = append(links, link{n, peer})
		default:
			links = append(links, link{peer, n})
		}
	}
	proof, err := cut(ctx, s, links)
	what := "deaf to its peers: "
	if mute {
		what = "not heard by its peers: "
	}
	w.proof = what + proof
	return w, err
}

// slow delays what goes between the target and its peers.
func slow(ctx context.Context, s *site) (*wound, error) {
	delay := 20*time.Millisecond + time.Duration(s.rng.Int64N(int64(180*time.Millisecond)))
	return shape(ctx, s, cluster.Quality{Delay: delay / 2, Jitter: delay / 4}, func(before, now time.Duration) (string, error) {
		if now < before+delay/2 {
			return "", fmt.Errorf("%w: a connection takes %v with %v of delay", ErrNoEffect, now, delay)
		}
		return fmt.Sprintf("%v of delay to and fro: a connection takes %v, %v before", delay.Round(time.Millisecond), now.Round(time.Millisecond), before.Round(time.Microsecond)), nil
	})
}

// lossy drops some of what goes between the target and its peers.
func lossy(ctx context.Context, s *site) (*wound, error) {
	loss := 0.05 + 0.25*s.rng.Float64()
	return shape(ctx, s, cluster.Quality{Loss: loss}, func(time.Duration, time.Duration) (string, error) {
		return fmt.Sprintf("%.0f %% of the packets are dropped", 100*loss), nil
	})
}

// shape gives all links between the target and its peers a quality. That something was dropped or delayed is counted.
func shape(ctx context.Context, s *site, q cluster.Quality, prove func(before, now time.Duration) (string, error)) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	shaper, ok := s.c.Network().(cluster.Shaper)
	if !ok {
		return w, errors.New("nemesis: this network has no slow links")
	}
	began := shaper.Shaped()
	w.heal = func(ctx context.Context) (string, error) {
		_, err := mend(s.c)(ctx)
		now := shaper.Shaped()
		passed, dropped := now.Passed-began.Passed, now.Dropped-began.Dropped
		if err == nil && (passed == 0 || q.Loss > 0 && dropped == 0) {
			err = fmt.Errorf("%w: %d packets passed, %d dropped", ErrNoEffect, passed, dropped)
		}
		return fmt.Sprintf("%d packets passed, %d dropped", passed, dropped), err
	}
	peer := s.others(1)[0]
	timed := func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		at := time.Now()
		err := s.c.Network().Probe(ctx, n.Index, peer.Addrs.Raft)
		return time.Since(at), err
	}
	before, err := timed()
	if err != nil {
		return w, err
	}
	for _, p := range s.nodes {
		if p == n {
			continue
		}
		if err := errors.Join(shaper.Shape(n.Index, p.Index, q), shaper.Shape(p.Index, n.Index, q)); err != nil {
			return w, err
		}
	}
	now, err := timed()
	if err != nil && q.Loss == 0 {
		return w, err
	}
	w.proof, err = prove(before, now)
	return w, err
}

// A link that is silent for so long counts as cut, one that is open may take so long on a busy machine.
const (
	silence     = 200 * time.Millisecond
	openTimeout = 2 * time.Second
)

// probe connects from a node to another one within d.
func probe(ctx context.Context, c *cluster.Cluster, l link, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return c.Network().Probe(ctx, l.from.Index, l.to.Addrs.Raft)
}

func isTimeout(err error) bool {
	var nerr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &nerr) && nerr.Timeout()
}
