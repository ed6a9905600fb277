package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

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
	cpu := cpuTime(b)
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
	reportCosts(b, cpu)
	p.Close()
}

// BenchmarkPingPong is one synchronous client: what a lone request costs on top of its handler.
func BenchmarkPingPong(b *testing.B) {
	for name, code := range map[string]int32{"inline": codeEcho, "pooled": codePooled} {
		b.Run("reply="+name+"/size=100", func(b *testing.B) {
			_, addr := startServer(b, Config{}, registerEcho)
			p := dialPeer(b, addr)
			frame := remoting.AppendFrame(nil, request(code, 1, string(make([]byte, 100))))
			answer := make([]byte, 4096)
			b.ReportAllocs()
			cpu := cpuTime(b)
			for b.Loop() {
				p.write(frame)
				if _, err := p.Read(answer); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			reportCosts(b, cpu)
			p.Close()
		})
	}
}

// reportCosts adds the CPU time of both sides, which a busy machine disturbs less than time.
func reportCosts(b *testing.B, before time.Duration) {
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
