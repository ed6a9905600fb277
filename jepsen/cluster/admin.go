package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"raftmq/transport/remoting"
)

// Admin sends an operator's request to the node and decodes the answer, which may be nil.
func (n *Node) Admin(ctx context.Context, code int32, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	c, err := n.Dial(ctx)
	if err != nil {
		return fmt.Errorf("cluster: %s of %s: %w", remoting.RequestCodeName(code), n.ID, err)
	}
	defer c.Close()
	resp, err := c.Invoke(ctx, &remoting.Command{Code: code, Body: body})
	if err != nil {
		return fmt.Errorf("cluster: %s of %s: %w", remoting.RequestCodeName(code), n.ID, err)
	}
	if resp.Code != remoting.ResponseSuccess {
		return fmt.Errorf("cluster: %s of %s: code %d, %s", remoting.RequestCodeName(code), n.ID, resp.Code, resp.Remark)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(resp.Body, answer); err != nil {
		return fmt.Errorf("cluster: %s of %s: %w", remoting.RequestCodeName(code), n.ID, err)
	}
	return nil
}

// Leave makes the node leave its cluster for good, and waits for its process to end with status 0.
func (n *Node) Leave(ctx context.Context) error {
	if err := n.Admin(ctx, remoting.RequestLeave, struct{}{}, nil); err != nil {
		return err
	}
	n.mu.Lock()
	p := n.mu.proc
	n.mu.expected = true
	n.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("cluster: %s has left and does not end: %w", n.ID, ctx.Err())
	}
	if !p.state.Success() {
		return fmt.Errorf("cluster: %s after it left: %w", n.ID, n.exitError())
	}
	return nil
}
