package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"raftmq/transport/remoting"
)

// BenchmarkEcho keeps 256 requests of 1 KiB in flight on one connection. The client side is as
// lean as possible: it writes prepared frames and only counts lengths.
func BenchmarkEcho(b *testing.B) {
	for _, mode := range []struct {
		name string
		code int32
	}{{"reply=inline", codeEcho}, {"reply=raw", codeRaw}, {"reply=pooled", codePooled}} {
		for _, serialize := range []remoting.SerializeType{remoting.SerializeJSON, remoting.SerializeRocketMQ} {
			for _, size := range []int{16, 1024} {
				b.Run(fmt.Sprintf("%s/header=%d/size=%d/in-flight=256", mode.name, serialize, size), func(b *testing.B) {
					_, addr := startServer(b, Config{}, registerEcho)
					echoLoop(b, dialPeer(b, addr), mode.code, serialize, size)
				})
			}
		}
	}
}

func echoLoop(b *testing.B, p *peer, code int32, serialize remoting.SerializeType, size int) {
	const window, chunk = 256, 64
	frame := remoting.AppendFrame(nil, &remoting.Command{Code: code, Serialize: serialize, Opaque: 7, Body: make([]byte, size)})
	var burst []byte
	for range chunk {
		burst = append(burst, frame...)
	}
	for range window / chunk {
		p.write(burst)
	}
	b.ReportAllocs()
	b.SetBytes(int64(size))
	var head [4]byte
	received := 0
	for b.Loop() {
		if _, err := io.ReadFull(p.br, head[:]); err != nil {
			b.Fatal(err)
		}
		if _, err := p.br.Discard(int(binary.BigEndian.Uint32(head[:]))); err != nil {
			b.Fatal(err)
		}
		if received++; received%chunk == 0 {
			p.write(burst)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	p.Close()
}
