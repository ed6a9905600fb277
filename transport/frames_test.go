package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"raftmq/transport/remoting"
)

// frameOf is a frame whose content is not looked at by the cutter.
func frameOf(size int, fill byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(size))
	return append(b, bytes.Repeat([]byte{fill}, size)...)
}

// cutAll reads src to its end and returns copies of the frames.
func cutAll(src io.Reader, maxFrame int) (frames [][]byte, f *frameBuffer, err error) {
	f = newFrameBuffer(maxFrame)
	for {
		_, readErr := f.fill(src)
		for {
			frame, err := f.next()
			if err != nil {
				return frames, f, err
			}
			if frame == nil {
				break
			}
			frames = append(frames, slices.Clone(frame))
		}
		if readErr != nil {
			return frames, f, readErr
		}
	}
}

func TestFrameCutter(t *testing.T) {
	sizes := []int{4, 5, 100, 4092, 4093, 4096, 65532, 65536, 65537, 300_000, 4, 1_000_000, 7}
	var stream []byte
	for i, size := range sizes {
		stream = append(stream, frameOf(size, byte(i))...)
	}
	for name, src := range map[string]io.Reader{
		"at once":   bytes.NewReader(stream),
		"halves":    iotest.HalfReader(bytes.NewReader(stream)),
		"with EOF":  iotest.DataErrReader(bytes.NewReader(stream)),
		"odd parts": &partReader{stream, 997},
	} {
		t.Run(name, func(t *testing.T) {
			frames, _, err := cutAll(src, 16<<20)
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if len(frames) != len(sizes) {
				t.Fatalf("%d frames, %d expected", len(frames), len(sizes))
			}
			for i, frame := range frames {
				if !bytes.Equal(frame, frameOf(sizes[i], byte(i))[lengthFieldSize:]) {
					t.Errorf("frame %d of %d bytes differs, %d bytes expected", i, len(frame), sizes[i])
				}
			}
		})
	}
}

// partReader returns n bytes at a time.
type partReader struct {
	rest []byte
	n    int
}

func (r *partReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(r.n, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

func TestFrameCutterLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		length uint32
		bad    bool
	}{
		{"too short", 3, true},
		{"zero", 0, true},
		{"smallest", 4, false},
		{"largest", 1<<20 - 4, false},
		{"too large", 1<<20 - 3, true},
		{"all ones", 0xffffffff, true},
		{"http", binary.BigEndian.Uint32([]byte("GET ")), true},
		{"tls", binary.BigEndian.Uint32([]byte{0x16, 3, 1, 2}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			frames, f, err := cutAll(bytes.NewReader(binary.BigEndian.AppendUint32(nil, tc.length)), 1<<20)
			if bad := errors.Is(err, ErrBadFrame); bad != tc.bad || len(frames) != 0 {
				t.Errorf("error %v, %d frames", err, len(frames))
			}
			if len(f.buf) > readBufferSize {
				t.Errorf("a length field alone made a buffer of %d bytes", len(f.buf))
			}
		})
	}
}

// TestFrameBufferSize: the buffer follows the bytes that came, and is given back.
func TestFrameBufferSize(t *testing.T) {
	f := newFrameBuffer(16 << 20)
	large := frameOf(5<<20, 'x')
	src := bytes.NewReader(large)
	for read := 0; ; {
		frame, err := f.next()
		if err != nil {
			t.Fatal(err)
		}
		if frame != nil {
			break
		}
		n, err := f.fill(src)
		if err != nil {
			t.Fatal(err)
		}
		if read += n; len(f.buf) > max(2*read, 2*smallReadBuffer) {
			t.Fatalf("buffer of %d bytes for %d received", len(f.buf), read)
		}
	}
	small := frameOf(100, 'y')
	for range shrinkAfter + 1 {
		if _, err := f.fill(bytes.NewReader(small)); err != nil {
			t.Fatal(err)
		}
		if frame, err := f.next(); err != nil || !bytes.Equal(frame, small[lengthFieldSize:]) {
			t.Fatalf("frame of %d bytes, %v", len(frame), err)
		}
	}
	if len(f.buf) != readBufferSize {
		t.Errorf("buffer of %d bytes kept", len(f.buf))
	}
}

// FuzzFrameCutter: a stream that comes in two parts gives the same frames and the same
// error as one that comes whole.
func FuzzFrameCutter(f *testing.F) {
	f.Add(remoting.AppendFrame(nil, &remoting.Command{Code: 105}), 3, uint16(1024))
	f.Add(append(frameOf(4, 0), frameOf(40, 1)...), 9, uint16(8192))
	f.Add(append(frameOf(300, 0), frameOf(50, 1)...), 100, uint16(400))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 2, uint16(100))
	f.Add([]byte{0, 0, 0, 3, 1, 2, 3}, 4, uint16(100))
	f.Fuzz(func(t *testing.T, stream []byte, at int, maxFrame uint16) {
		whole, _, wholeErr := cutAll(bytes.NewReader(stream), int(maxFrame))
		at = min(max(at, 0), len(stream))
		parts := io.MultiReader(bytes.NewReader(stream[:at]), bytes.NewReader(stream[at:]))
		cut, buffer, cutErr := cutAll(parts, int(maxFrame))
		if !slices.EqualFunc(whole, cut, bytes.Equal) || errors.Is(wholeErr, ErrBadFrame) != errors.Is(cutErr, ErrBadFrame) {
			t.Fatalf("%d frames (%v) whole, %d frames (%v) in parts", len(whole), wholeErr, len(cut), cutErr)
		}
		if len(buffer.buf) > max(2*len(stream), readBufferSize) {
			t.Fatalf("buffer of %d bytes for %d", len(buffer.buf), len(stream))
		}
		var joined []byte
		for _, frame := range cut {
			joined = binary.BigEndian.AppendUint32(joined, uint32(len(frame)))
			joined = append(joined, frame...)
		}
		if !bytes.HasPrefix(stream, joined) {
			t.Fatal("frames are not the stream's bytes")
		}
	})
}
