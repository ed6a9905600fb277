// Package client is a small request/response remoting client for RaftMQ's own tools,
// nodes and tests. Applications use Apache's clients.
package client

import (
	"context"

	"raftmq/transport/remoting"
)

// Client is one pipelined connection; safe for concurrent use.
type Client struct{}

// Dial connects to a node's client address.
func Dial(ctx context.Context, addr string) (*Client, error) { panic("stub") }

// Invoke sends cmd (opaque is filled in) and waits for the answer, which owns its bytes.
func (c *Client) Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	panic("stub")
}

// Go sends cmd and calls done exactly once from the reader goroutine; resp is valid
// until done returns. The hot path of raftmq bench.
func (c *Client) Go(cmd *remoting.Command, done func(resp *remoting.Command, err error)) {
	panic("stub")
}

// SendOneWay sends cmd with the one-way flag.
func (c *Client) SendOneWay(cmd *remoting.Command) error { panic("stub") }

// OnRequest sets the handler of requests that the server sends; nil answer for none. Before use.
func (c *Client) OnRequest(h func(cmd *remoting.Command) *remoting.Command) { panic("stub") }

// Done is closed when the connection is gone; Err says why.
func (c *Client) Done() <-chan struct{} { panic("stub") }

// Err returns the reason after Done.
func (c *Client) Err() error { panic("stub") }

// Close closes the connection; what is in flight fails.
func (c *Client) Close() error { panic("stub") }
