package remoting

import "testing"

// hotPaths are the functions that run once per message; each must not allocate.
func hotPaths(t testing.TB) map[string]func() {
	paths := map[string]func(){}
	dst := make([]byte, 0, 8192)
	body := make([]byte, 1024)
	for name, header := range map[string]string{"send=10": goSend, "send=310": javaSend, "pull=11": javaPull} {
		var c Command
		var scratch []byte
		frames := [][]byte{rawFrame(SerializeJSON, header, body)}
		if err := DecodeFrame(frames[0], &c, &scratch); err != nil {
			t.Fatal(err)
		}
		own := c.Clone()
		var send SendHeader
		var pull PullHeader
		decode := func() error { return send.Decode(own) }
		if name == "pull=11" {
			decode = func() error { return pull.Decode(own) }
		}
		if err := decode(); err != nil {
			t.Fatal(err)
		}
		paths["header/"+name] = func() {
			if decode() != nil {
				t.Fatal("header")
			}
		}
		own.Serialize = SerializeRocketMQ
		frames = append(frames, AppendFrame(nil, own)[LengthSize:])
		for i, serialize := range []string{"/header=json", "/header=binary"} {
			frame := frames[i]
			paths["decode/"+name+serialize] = func() {
				scratch = scratch[:0]
				if err := DecodeFrame(frame, &c, &scratch); err != nil {
					t.Fatal(err)
				}
			}
			cmd := own.Clone()
			cmd.Serialize = SerializeType(i)
			paths["encode/"+name+serialize] = func() { dst = AppendFrame(dst[:0], cmd) }
			style := RequestStyle{Serialize: SerializeType(i)}
			if name == "pull=11" {
				paths["request/"+name+serialize] = func() { dst = style.AppendPull(dst[:0], 7, &pull) }
			} else {
				paths["request/"+name+serialize] = func() { dst = style.AppendSend(dst[:0], 7, &send, body) }
			}
		}
	}
	for i, serialize := range []string{"/header=json", "/header=binary"} {
		s := SendResponse{
			Serialize: SerializeType(i), Opaque: 24, Version: Version4_9_4, MsgID: []byte("7F00000100002EEB0000000000000000"),
			QueueOffset: 123456, Region: []byte("DefaultRegion"), TraceOn: true,
		}
		paths["answer/send"+serialize] = func() { dst = AppendSendResponse(dst[:0], s) }
		p := PullResponse{
			Serialize: SerializeType(i), Opaque: 24, Version: Version4_9_4, Remark: "FOUND",
			NextBeginOffset: 123456, MaxOffset: 200000,
		}
		paths["answer/pull"+serialize] = func() { dst = AppendPullResponseHead(dst[:0], p, 65536) }
		var c Command
		var scratch []byte
		sent, pulled := AppendSendResponse(nil, s)[LengthSize:], AppendPullResponseHead(nil, p, 0)[LengthSize:]
		paths["decode/answer=send"+serialize] = func() {
			if DecodeFrame(sent, &c, &scratch) != nil || s.Decode(&c) != nil {
				t.Fatal("decode")
			}
		}
		paths["decode/answer=pull"+serialize] = func() {
			if DecodeFrame(pulled, &c, &scratch) != nil || p.Decode(&c) != nil {
				t.Fatal("decode")
			}
		}
	}
	return paths
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for name, run := range hotPaths(t) {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
