package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame layout (RocketMQ RemotingCommand, NettyDecoder):
//
//	u32  L, number of bytes that follow this field
//	u32  serialise type (8 bits), header length (24 bits)
//	     header, body
//
// The cutter looks only at L; remoting.DecodeFrame checks the rest.
const (
	lengthFieldSize = 4
	minFrameLength  = 4 // L of a frame with neither header nor body
)

const (
	smallReadBuffer = 4 << 10  // what a connection starts with
	readBufferSize  = 64 << 10 // what a busy one reads at a time
	shrinkAfter     = 64       // reads that did not need a larger buffer before it goes
)

// ErrBadFrame is returned for bytes that cannot be a frame: the stream has no
// boundary any more, so its connection closes.
var ErrBadFrame = errors.New("transport: bad frame")

// frameBuffer gathers the bytes of one connection and cuts frames from them.
// buf[r:w] is read and not yet cut. A frame stays where it was read: next returns views.
//
// The buffer grows by doubling as the bytes of a large frame arrive, never at once to
// the announced length: a peer that announces 16 MiB and sends nothing costs nothing.
type frameBuffer struct {
	buf      []byte
	r, w     int
	maxFrame int // length field included
	full     bool
	unneeded int // fills since a frame needed more than readBufferSize
}

func newFrameBuffer(maxFrame int) *frameBuffer {
	return &frameBuffer{buf: make([]byte, smallReadBuffer), maxFrame: maxFrame}
}

// fill reads once from src. Frames returned by next are invalid from here on.
func (f *frameBuffer) fill(src io.Reader) (int, error) {
	f.makeRoom()
	n, err := src.Read(f.buf[f.w:])
	f.w += n
	f.full = f.w == len(f.buf)
	return n, err
}

// makeRoom leaves at least one free byte at the end and the unread bytes in front.
func (f *frameBuffer) makeRoom() {
	unread := f.w - f.r
	size := len(f.buf)
	switch {
	case unread >= size: // inside a frame larger than the buffer
		size *= 2
	case f.full && size < readBufferSize: // the kernel had more to give
		size *= 2
	case size > readBufferSize && f.unneeded >= shrinkAfter && unread < readBufferSize:
		size = readBufferSize
	}
	if f.needed() > readBufferSize {
		f.unneeded = 0
	} else {
		f.unneeded++
	}
	if size != len(f.buf) {
		grown := make([]byte, size)
		copy(grown, f.buf[f.r:f.w])
		f.buf = grown
	} else if f.r > 0 {
		copy(f.buf, f.buf[f.r:f.w])
	}
	f.r, f.w = 0, unread
}

// needed is the size of the frame at r, 0 when its length field is not complete.
func (f *frameBuffer) needed() int {
	if f.w-f.r < lengthFieldSize {
		return 0
	}
	return lengthFieldSize + int(binary.BigEndian.Uint32(f.buf[f.r:]))
}

// next returns the next whole frame without its length field, nil when more bytes are
// needed first. The view is valid until fill.
func (f *frameBuffer) next() ([]byte, error) {
	if f.w-f.r < lengthFieldSize {
		return nil, nil
	}
	length := binary.BigEndian.Uint32(f.buf[f.r:])
	if length < minFrameLength {
		return nil, fmt.Errorf("%w: length %d, at least %d expected", ErrBadFrame, length, minFrameLength)
	}
	if uint64(length)+lengthFieldSize > uint64(f.maxFrame) {
		return nil, fmt.Errorf("%w: length %d above the limit of %d", ErrBadFrame, length, f.maxFrame-lengthFieldSize)
	}
	end := f.r + lengthFieldSize + int(length)
	if end > f.w {
		return nil, nil
	}
	frame := f.buf[f.r+lengthFieldSize : end : end]
	f.r = end
	return frame, nil
}
