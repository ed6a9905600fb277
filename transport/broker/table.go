package broker

import (
	"context"

	"raftmq/fsm/command"
)

// tableProposal is a table command whose outcome goes to a function.
type tableProposal struct {
	encoded []byte
	done    func(error)
}

// AppendCommand implements raftnode.Proposal.
func (p *tableProposal) AppendCommand(dst []byte, _ int64) []byte { return append(dst, p.encoded...) }

// Done implements raftnode.Proposal.
func (p *tableProposal) Done(entryResult any, i int, err error) {
	_, err = command.ResultOf(entryResult, i, err)
	p.done(err)
}

// proposeTable proposes a table command. done is called once, on the completion goroutine, unless
// an error is returned.
func (b *Broker) proposeTable(kind command.Kind, payload any, done func(error)) error {
	encoded, err := command.AppendJSON(nil, kind, payload)
	if err != nil {
		return err
	}
	return b.cfg.Raft.Propose(&tableProposal{encoded, done})
}

// change proposes a table command and waits until it is applied here. The tables' refusals come back as errors.
func (b *Broker) change(ctx context.Context, kind command.Kind, payload any) error {
	encoded, err := command.AppendJSON(nil, kind, payload)
	if err != nil {
		return err
	}
	result, i, err := b.cfg.Raft.ProposeWait(ctx, encoded)
	_, err = command.ResultOf(result, i, err)
	return err
}
