package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
)

// Layout of a staging folder. Log bytes that a peer sent lie in pieces, files named by the offset of their first byte, big-endian:
//
//	0   4  magic "RMQC"
//	4   1  version, 1
//	5   1  flags: 1 the bytes replace the log
//	6   2  zero
//	8   8  offset of the first staged byte, the same in all pieces
//	16  8  offset of this piece's first byte
//	24  4  zero
//	28  4  CRC-32C of the 28 bytes before
//	then frames, one behind the other:
//	  0   4  length of the bytes, 0: no frame
//	  4   4  CRC-32C of the bytes
//	  8   4  CRC-32C of the offset of the first byte (8 bytes) and the 8 bytes before
//	  12     the bytes
//
// The file "sealed" says for which snapshot the bytes are complete:
//
//	0   4  magic "RMQD"
//	4   2  version, 1
//	6   2  flags: 1 the bytes replace the log
//	8   8  raft index of the snapshot
//	16  8  offset of the first staged byte
//	24  8  end of the bytes that belong to the snapshot
//	32  4  CRC-32C of the 32 bytes before
const (
	pieceMagic      = "RMQC"
	sealMagic       = "RMQD"
	stagingVersion  = 1
	flagReplaces    = 1
	pieceHeaderSize = 32
	frameHeaderSize = 12
	sealSize        = 36
	sealName        = "sealed"
	pieceSuffix     = ".part"
	// pieceSize is the size of a piece's file. Frames are never across pieces.
	pieceSize = 64 << 20
	// MaxStaged is the most that one Append may bring.
	MaxStaged = 8 << 20
)

func pieceName(first int64) string { return fmt.Sprintf("%020d", first) + pieceSuffix }

// Seal says what staged bytes are for.
type Seal struct {
	RaftIndex uint64 // of the snapshot
	From, To  int64  // log bytes
	Replaces  bool   // they replace the log; otherwise they go on where it ends
}

var errSealVersion = fmt.Errorf("%w: staging of a newer raftmq", ErrFolder)

func appendSeal(dst []byte, s Seal) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = append(dst, sealMagic...)
	dst = be.AppendUint16(dst, stagingVersion)
	var flags uint16
	if s.Replaces {
		flags = flagReplaces
	}
	dst = be.AppendUint16(dst, flags)
	dst = be.AppendUint64(dst, s.RaftIndex)
	dst = be.AppendUint64(dst, uint64(s.From))
	dst = be.AppendUint64(dst, uint64(s.To))
	return be.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func decodeSeal(b []byte) (s Seal, err error) {
	be := binary.BigEndian
	if len(b) != sealSize || string(b[:4]) != sealMagic || crc32.Checksum(b[:32], castagnoli) != be.Uint32(b[32:]) {
		return s, fmt.Errorf("%w: seal of %d bytes", ErrStaging, len(b))
	}
	version, flags := be.Uint16(b[4:]), be.Uint16(b[6:])
	if version != stagingVersion || flags&^flagReplaces != 0 {
		return s, fmt.Errorf("%w: version %d, flags %#x", errSealVersion, version, flags)
	}
	s = Seal{Replaces: flags == flagReplaces, RaftIndex: be.Uint64(b[8:]), From: int64(be.Uint64(b[16:])), To: int64(be.Uint64(b[24:]))}
	if s.From < 0 || s.To < s.From {
		return s, fmt.Errorf("%w: seal of [%d, %d)", ErrStaging, s.From, s.To)
	}
	return s, nil
}

// scanned is what a piece holds.
type scanned struct {
	replaces    bool
	from, first int64
	bytes, end  int64 // log bytes, position behind the last frame
	sum         uint32
}

// scanPiece reads a piece up to the first frame that is none, or not whole.
func scanPiece(b []byte) (r scanned, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	be := binary.BigEndian
	if len(b) < pieceHeaderSize || string(b[:4]) != pieceMagic || crc32.Checksum(b[:28], castagnoli) != be.Uint32(b[28:]) {
		return r, fmt.Errorf("%w: piece's header", ErrStaging)
	}
	if b[4] != stagingVersion || b[5]&^flagReplaces != 0 {
		return r, fmt.Errorf("%w: version %d, flags %d", errSealVersion, b[4], b[5])
	}
	r.replaces, r.from, r.first = b[5] == flagReplaces, int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:]))
	if r.from < 0 || r.first < r.from {
		return r, fmt.Errorf("%w: piece at %d of bytes from %d on", ErrStaging, r.first, r.from)
	}
	r.end = pieceHeaderSize
	for {
		bytes, sum, ok := frameAt(b[r.end:], r.first+r.bytes)
		if !ok {
			return r, nil
		}
		r.sum = commitlog.CombineSums(r.sum, sum, int64(len(bytes)))
		r.bytes += int64(len(bytes))
		r.end += frameHeaderSize + int64(len(bytes))
	}
}

// frameAt is the frame that b begins with, of the bytes at offset off; false when it is none, or damaged.
func frameAt(b []byte, off int64) (bytes []byte, sum uint32, ok bool) {
	if len(b) < frameHeaderSize {
		return nil, 0, false
	}
	be := binary.BigEndian
	n := int64(be.Uint32(b))
	if n == 0 || n > int64(len(b))-frameHeaderSize || frameSum(b, off) != be.Uint32(b[8:]) {
		return nil, 0, false
	}
	bytes, sum = b[frameHeaderSize:frameHeaderSize+n], be.Uint32(b[4:])
	return bytes, sum, crc32.Checksum(bytes, castagnoli) == sum
}

func frameSum(header []byte, off int64) uint32 {
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(off))
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, header[:8])
}
