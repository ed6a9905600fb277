package namesrv

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"raftmq/transport"
	"raftmq/transport/remoting"
)

// TestOverSockets: every registered code gets one answer on a real connection, with its own opaque
// and in the serialisation of the request.
func TestOverSockets(t *testing.T) {
	n := newNode(t)
	s := transport.NewServer(transport.Config{})
	n.Register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	defer s.Shutdown(t.Context())
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}

	want := map[int32]int32{ // request code → answer's
		105: 0, 106: 0, 206: 0, 224: 0, 304: 0, 311: 0, 312: 0, 313: 0, 216: 0, 100: 0, 101: 22, 102: 0, 219: 22, 205: 0, 327: 0, 318: 1, 319: 0,
	}
	if got := len(n.answers()) + 1; got != len(want) {
		t.Fatalf("%d handlers, the test knows %d", got, len(want))
	}
	sent := map[int32]int32{} // opaque → request code
	for code := range want {
		for i, serialize := range []remoting.SerializeType{remoting.SerializeJSON, remoting.SerializeRocketMQ} {
			cmd := remoting.Command{Code: code, Opaque: 2*code + int32(i), Version: remoting.Version4_9_4, Serialize: serialize}
			for _, kv := range [][2]string{{"topic", "TBW102"}, {"cluster", "PeerCluster"}, {"brokerName", "nobody"}, {"namespace", "N"}, {"value", "v"}} {
				cmd.Set(kv[0], kv[1])
			}
			// Requests of a pool are answered in any order: each has a key of its own.
			cmd.Set("key", map[int32]string{100: "put", 101: "get", 102: "delete"}[code])
			if code == 219 {
				cmd.Set("namespace", "empty")
			}
			sent[cmd.Opaque] = code
			if _, err := conn.Write(remoting.AppendFrame(nil, &cmd)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range len(sent) {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			t.Fatal(err)
		}
		var resp remoting.Command
		var scratch []byte
		if err := remoting.DecodeFrame(frame, &resp, &scratch); err != nil {
			t.Fatal(err)
		}
		code, ok := sent[resp.Opaque]
		if !ok || !resp.IsResponse() {
			t.Fatalf("answer %+v to nothing", resp)
		}
		delete(sent, resp.Opaque)
		if resp.Code != want[code] {
			t.Errorf("%d: code %d %q, want %d", code, resp.Code, resp.Remark, want[code])
		}
		if serialize := remoting.SerializeType(resp.Opaque - 2*code); resp.Serialize != serialize {
			t.Errorf("%d: serialised as %d, asked as %d", code, resp.Serialize, serialize)
		}
	}
	if v, ok := n.tables.KV("N", "put"); !ok || v != "v" {
		t.Errorf("the put key holds %q, %v", v, ok)
	}
}
