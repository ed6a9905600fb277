package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/transport/remoting"
)

// propose applies one command on this node, which must lead, and returns what the tables said to it.
func (g *brokerGroup) propose(ctx context.Context, encoded []byte) error {
	result, i, err := g.raft.ProposeWait(ctx, encoded)
	if err != nil {
		return err
	}
	return result.(command.Results)[i].Err
}

// proposeKV changes the KV table: here, or, on a follower, by asking the leader with the request that a client would send.
func (g *brokerGroup) proposeKV(ctx context.Context, encoded []byte) error {
	err := g.propose(ctx, encoded)
	if !errors.Is(err, raftnode.ErrNotLeader) {
		return err
	}
	req, err := kvRequest(encoded)
	if err != nil {
		return err
	}
	resp, err := g.forward(ctx, req)
	if err != nil {
		return err
	}
	if resp.Code != remoting.ResponseSuccess {
		return fmt.Errorf("the leader answered %s: %s", remoting.ResponseCodeName(resp.Code), resp.Remark)
	}
	return nil
}

func kvRequest(encoded []byte) (*remoting.Command, error) {
	r, err := command.NewReader(append(command.AppendEntryHead(nil), encoded...))
	if err != nil {
		return nil, err
	}
	c, _, err := r.Next()
	if err != nil {
		return nil, err
	}
	var kv command.KVPut // KVDelete has a part of its fields
	if err := json.Unmarshal(c.Payload, &kv); err != nil {
		return nil, fmt.Errorf("%w: %w", command.ErrMalformed, err)
	}
	req := &remoting.Command{Code: remoting.RequestDeleteKVConfig}
	if c.Kind == command.KindKVPut {
		req.Code = remoting.RequestPutKVConfig
		req.Set("value", kv.Value)
	}
	req.Set("namespace", kv.Namespace)
	req.Set("key", kv.Key)
	return req, nil
}

// updateNode stores a member's addresses in the tables when they differ. Leader only.
func (g *brokerGroup) updateNode(ctx context.Context, m membership.Member) error {
	want := command.NodePut{ID: m.NodeID, ClientAddr: m.ClientAddr, RaftAddr: m.RaftAddr, HTTPAddr: m.HTTPAddr, Version: m.Version}
	if have, ok := g.tables.Node(m.NodeID); ok && have.NodePut == want {
		return nil
	}
	encoded, err := command.AppendJSON(nil, command.KindNodePut, want)
	if err != nil {
		return err
	}
	return g.propose(ctx, encoded)
}
