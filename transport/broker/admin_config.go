package broker

import (
	"context"
	"strings"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// updateConfig serves UPDATE_BROKER_CONFIG: settings that can change while the cluster runs are kept in the tables and count on
// all nodes; an empty value goes back to each node's own. Others are refused with the reason, and then nothing
// is changed. (A 4.9.4 broker passes over what it does not know.)
func (b *Broker) updateConfig(r transport.Responder, cmd *remoting.Command) {
	changes := parseProperties(string(cmd.Body))
	for _, c := range changes {
		err := errNoSettings
		if b.cfg.CheckSetting != nil {
			err = b.cfg.CheckSetting(c.key, c.value)
		}
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, err.Error())
			return
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, changeTimeout)
	defer cancel()
	for _, c := range changes {
		if f := b.changeSetting(ctx, c); f != nil {
			answerRefusal(r, f)
			return
		}
		b.logger.Info("setting changed on all nodes", "setting", c.key, "value", c.value)
	}
	success(r)
}

func (b *Broker) changeSetting(ctx context.Context, c property) *refusal {
	var err error
	if c.value == "" {
		if _, ok := b.cfg.Tables.KV(metadata.SettingsNamespace, c.key); !ok {
			return nil
		}
		err = b.change(ctx, command.KindKVDelete, command.KVDelete{Namespace: metadata.SettingsNamespace, Key: c.key})
	} else {
		err = b.change(ctx, command.KindKVPut, command.KVPut{Namespace: metadata.SettingsNamespace, Key: c.key, Value: c.value})
	}
	switch {
	case err == nil:
		return nil
	case isUnavailable(err):
		return refusalOf(err, b.cfg.MaxMessageSize)
	}
	return refuse(remoting.ResponseSystemError, "%v", err)
}

// property is one line of a properties text.
type property struct{ key, value string }

// parseProperties reads the lines key=value that Java's tools write; comments and blank lines are passed over.
func parseProperties(text string) (out []property) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		out = append(out, property{strings.TrimSpace(key), strings.TrimSpace(value)})
	}
	return out
}
