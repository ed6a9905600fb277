package namesrv

import (
	"context"
	"errors"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// putKV answers 100.
func (p *Processor) putKV(cmd *remoting.Command) *remoting.Command {
	put := command.KVPut{Namespace: cmd.GetString("namespace"), Key: cmd.GetString("key"), Value: cmd.GetString("value")}
	if put.Namespace == "" || put.Key == "" {
		return refuse(remoting.ResponseSystemError, "namespace or key is missing")
	}
	if f := ownNamespace(put.Namespace); f != nil {
		return f
	}
	return p.propose(command.KindKVPut, put)
}

// deleteKV answers 102. A key that isn't there is deleted already.
func (p *Processor) deleteKV(cmd *remoting.Command) *remoting.Command {
	del := command.KVDelete{Namespace: cmd.GetString("namespace"), Key: cmd.GetString("key")}
	if del.Namespace == "" || del.Key == "" {
		return refuse(remoting.ResponseSystemError, "namespace or key is missing")
	}
	if f := ownNamespace(del.Namespace); f != nil {
		return f
	}
	return p.propose(command.KindKVDelete, del)
}

// ownNamespace refuses changes of what the broker keeps in the table for itself, checked.
func ownNamespace(namespace string) *remoting.Command {
	if namespace != metadata.SettingsNamespace {
		return nil
	}
	return refuse(remoting.ResponseSystemError, "namespace "+namespace+" holds the broker's settings: change them with updateBrokerConfig")
}

// propose has a table command applied and answers when it is.
func (p *Processor) propose(kind command.Kind, payload any) *remoting.Command {
	encoded, err := command.AppendJSON(nil, kind, payload)
	if err != nil {
		return refuse(remoting.ResponseSystemError, err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.ProposeTimeout)
	defer cancel()
	if err := p.cfg.Propose(ctx, encoded); err != nil && !errors.Is(err, metadata.ErrNoKey) {
		return refuse(remoting.ResponseSystemError, "the change was not confirmed, look and retry: "+err.Error())
	}
	return &remoting.Command{}
}

// getKV answers 101. An answer without a value still has an (empty) ext map, as the real one has.
func (p *Processor) getKV(cmd *remoting.Command) *remoting.Command {
	namespace, key := cmd.GetString("namespace"), cmd.GetString("key")
	resp := &remoting.Command{Ext: []remoting.Field{}}
	value, ok := p.cfg.KV.KV(namespace, key)
	if !ok {
		if err := p.canKnow(); err != nil {
			return unknown(err)
		}
		resp.Code, resp.Remark = remoting.ResponseQueryNotFound, "No config item, Namespace: "+namespace+" Key: "+key
		return resp
	}
	resp.Set("value", value)
	return resp
}

// listKV answers 219.
func (p *Processor) listKV(cmd *remoting.Command) *remoting.Command {
	namespace := cmd.GetString("namespace")
	table := p.cfg.KV.KVNamespace(namespace)
	if table == nil {
		if err := p.canKnow(); err != nil {
			return unknown(err)
		}
		return refuse(remoting.ResponseQueryNotFound, "No config item, Namespace: "+namespace)
	}
	body := remoting.KVTable{Table: table}
	return &remoting.Command{Body: body.Encode()}
}

// canKnow says why this node's tables may lack what others have (Never-Guess).
func (p *Processor) canKnow() error {
	_, err := p.cfg.Routes.Clusters()
	return err
}
