package raftnode

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// Neither raft-wal nor bbolt notices a flipped bit in an entry that it reads, so each entry is stored with a checksum of our own, behind what Raft has in Extensions (nothing, as it is
// used here), and read without it:
//
//	extensions … | "RMS\x01" | u32 CRC-32C, big-endian, of index, term (u64 each), type (u8), data, extensions
//
// It is each node's own, and goes over no wire. A raftmq from before reads such entries as they are; entries from then have none and are believed.
const (
	sumMagic = "RMS\x01"
	sumBytes = len(sumMagic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func entrySum(l *raft.Log, extensions []byte) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], l.Index)
	binary.BigEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	sum := crc32.Update(0, castagnoli, head[:])
	sum = crc32.Update(sum, castagnoli, l.Data)
	return crc32.Update(sum, castagnoli, extensions)
}

// withSums are the entries as they are stored. They share their data with logs.
func withSums(logs []*raft.Log) []*raft.Log {
	entries, out, room := make([]raft.Log, len(logs)), make([]*raft.Log, len(logs)), make([]byte, 0, len(logs)*sumBytes)
	for i, l := range logs {
		entries[i] = *l
		out[i] = &entries[i]
		sum := entrySum(l, l.Extensions)
		if len(l.Extensions) > 0 {
			b := append(make([]byte, 0, len(l.Extensions)+sumBytes), l.Extensions...)
			entries[i].Extensions = binary.BigEndian.AppendUint32(append(b, sumMagic...), sum)
			continue
		}
		at := len(room)
		room = binary.BigEndian.AppendUint32(append(room, sumMagic...), sum)
		entries[i].Extensions = room[at:len(room):len(room)]
	}
	return out
}

// checkEntry compares an entry that was read with its checksum, if it has one, and takes that off.
func checkEntry(index uint64, l *raft.Log) error {
	if l.Index != index {
		return damaged("entry %d is stored where entry %d should be", l.Index, index)
	}
	at := len(l.Extensions) - sumBytes
	if at < 0 || string(l.Extensions[at:at+len(sumMagic)]) != sumMagic {
		return nil
	}
	want := binary.BigEndian.Uint32(l.Extensions[at+len(sumMagic):])
	if got := entrySum(l, l.Extensions[:at]); got != want {
		return damaged("entry %d of term %d, %d bytes: checksum %#08x, stored with %#08x", l.Index, l.Term, len(l.Data), got, want)
	}
	if l.Extensions = l.Extensions[:at]; at == 0 {
		l.Extensions = nil
	}
	return nil
}
