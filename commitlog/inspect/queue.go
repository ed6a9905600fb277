package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"raftmq/commitlog/consumequeue"
)

// Queue is the folder of one consume queue.
type Queue struct {
	Topic string
	ID    int32
	Files []QueueFile // by offset
}

// QueueFile is one file of a queue, or of a queue's extension.
type QueueFile struct {
	Path string // relative to the store's root
	From int64  // byte 0 in the queue's address space; its first unit is From/20
	Size int64
	path string
}

func (s *Store) listQueues() error {
	var err error
	s.Queues, err = s.listQueueFolders(queueDir)
	if err != nil {
		return err
	}
	var sizes []int64
	for _, q := range s.Queues {
		for _, f := range q.Files {
			sizes = append(sizes, f.Size)
		}
	}
	switch {
	case s.opts.QueueFileSize > 0:
		s.QueueFileSize = s.opts.QueueFileSize
	case s.Meta.QueueFileSize > 0:
		s.QueueFileSize = s.Meta.QueueFileSize
	default:
		s.QueueFileSize = usualSize(sizes, consumequeue.DefaultFileSize)
	}
	for _, q := range s.Queues {
		s.checkQueueFiles(&q)
	}
	return nil
}

// checkQueueFiles looks for odd sizes and gaps.
func (s *Store) checkQueueFiles(q *Queue) {
	for i, f := range q.Files {
		at := Finding{File: f.Path, Topic: q.Topic, QueueID: q.ID, QueueOffset: f.From / consumequeue.UnitSize}
		switch {
		case f.From%s.QueueFileSize != 0:
			at.Kind, at.Detail = KindFileName, fmt.Sprintf("the offset is no multiple of the queue file size %d", s.QueueFileSize)
			s.note(at)
		case f.Size == 0:
			at.Kind, at.Detail = KindFileEmpty, fmt.Sprintf("0 bytes, queue files have %d", s.QueueFileSize)
			s.note(at)
		case f.Size != s.QueueFileSize:
			at.Kind, at.Offset, at.Detail = KindFileSize, f.Size, fmt.Sprintf("%d bytes, queue files have %d", f.Size, s.QueueFileSize)
			s.note(at)
		}
		if i == 0 {
			continue
		}
		if end := q.Files[i-1].From + s.QueueFileSize; f.From > end {
			at.Kind, at.Offset, at.Length = KindFileGap, 0, f.From-end
			at.Count = (f.From - end) / s.QueueFileSize
			at.QueueOffset = end / consumequeue.UnitSize
			at.Detail = fmt.Sprintf("units %d to %d have no file", end/consumequeue.UnitSize, f.From/consumequeue.UnitSize)
			s.note(at)
		}
	}
}

// listQueueFolders lists <dir>/<topic>/<queue id>/<20 digits>.
func (s *Store) listQueueFolders(name string) ([]Queue, error) {
	root := filepath.Join(s.Dir, name)
	topics, err := listDir(root)
	if err != nil {
		return nil, err
	}
	var queues []Queue
	for _, t := range topics {
		dir := filepath.Join(root, t.Name())
		if !t.IsDir() {
			s.note(Finding{Kind: KindFileName, Notice: true, File: s.rel(dir), Detail: "not a topic's folder"})
			continue
		}
		ids, err := listDir(dir)
		if err != nil {
			return nil, err
		}
		for _, d := range ids {
			sub := filepath.Join(dir, d.Name())
			id, err := strconv.ParseInt(d.Name(), 10, 32)
			if err != nil || id < 0 || !d.IsDir() {
				s.note(Finding{Kind: KindFileName, Notice: true, File: s.rel(sub), Detail: "not a queue's folder"})
				continue
			}
			q := Queue{Topic: t.Name(), ID: int32(id)}
			files, err := listDir(sub)
			if err != nil {
				return nil, err
			}
			for _, fi := range files {
				path := filepath.Join(sub, fi.Name())
				from := nameOffset(fi.Name())
				if from < 0 || fi.IsDir() {
					s.note(Finding{Kind: KindFileName, File: s.rel(path), Topic: q.Topic, QueueID: q.ID, Detail: "not a queue file: the name is no 20-digit offset"})
					continue
				}
				q.Files = append(q.Files, QueueFile{Path: s.rel(path), From: from, Size: fi.Size(), path: path})
			}
			slices.SortFunc(q.Files, func(a, b QueueFile) int { return cmpInt(a.From, b.From) })
			queues = append(queues, q)
		}
	}
	slices.SortFunc(queues, func(a, b Queue) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return cmpInt(int64(a.ID), int64(b.ID))
	})
	return queues, nil
}

// path is where a queue's file for unit n is, or would be.
func (s *Store) queuePath(topic string, id int32, n int64) (path string, offset int64) {
	pos := n * consumequeue.UnitSize
	from := int64(0)
	if s.QueueFileSize > 0 {
		from = pos - pos%s.QueueFileSize
	}
	return filepath.Join(queueDir, topic, strconv.Itoa(int(id)), fmt.Sprintf("%020d", from)), pos - from
}

// Unit is one unit of a queue.
type Unit struct {
	consumequeue.Unit
	Index  int64  // queue offset
	File   string // relative to the store's root
	Offset int64  // in the file
	Ext    *ExtUnit
}

// QueueFilter chooses units. The zero value chooses all.
type QueueFilter struct {
	Topic    string
	QueueID  *int32
	From, To int64 // physical offsets; To 0 is no bound
	Limit    int64
}

// Units visits the units of the queues in order of topic, queue id and offset; fillers too, but not what is behind the
// last unit of a file. A unit that refers to an extension comes with it.
func (s *Store) Units(f QueueFilter, visit func(q *Queue, u Unit) error) error {
	n := int64(0)
	for i := range s.Queues {
		q := &s.Queues[i]
		if f.Topic != "" && q.Topic != f.Topic || f.QueueID != nil && q.ID != *f.QueueID {
			continue
		}
		ext := extReader{s: s, topic: q.Topic, id: q.ID}
		err := s.units(q, func(file *QueueFile, at int64, u consumequeue.Unit) error {
			if u.Size <= 0 {
				return errEndOfFile
			}
			if u.PhyOffset < f.From || f.To > 0 && u.PhyOffset >= f.To {
				return nil
			}
			unit := Unit{Unit: u, Index: (file.From + at) / consumequeue.UnitSize, File: file.Path, Offset: at}
			if isExtAddress(u.TagsCode) {
				var err error
				if unit.Ext, err = ext.unit(u.TagsCode); err != nil {
					return err
				}
			}
			if err := visit(q, unit); err != nil {
				return err
			}
			if n++; f.Limit > 0 && n >= f.Limit {
				return ErrStop
			}
			return nil
		})
		ext.close()
		if errors.Is(err, ErrStop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errEndOfFile of a visitor goes on with the next file.
var errEndOfFile = errors.New("end of file")

// units visits every unit of a queue's files, zeroes and all.
func (s *Store) units(q *Queue, visit func(f *QueueFile, at int64, u consumequeue.Unit) error) error {
	w := &window{}
	for i := range q.Files {
		f := &q.Files[i]
		err := s.unitsOf(w, f, visit)
		if err != nil && !errors.Is(err, errEndOfFile) {
			return err
		}
	}
	return nil
}

func (s *Store) unitsOf(w *window, f *QueueFile, visit func(f *QueueFile, at int64, u consumequeue.Unit) error) error {
	src, err := openSource(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	w.reset(src)
	const stretch = 1000 * consumequeue.UnitSize
	for pos := int64(0); pos < src.size; {
		b, err := w.at(pos, stretch)
		if err != nil {
			return err
		}
		units := consumequeue.Units(b)
		if units.Len() == 0 {
			return nil
		}
		for i := range units.Len() {
			if err := visit(f, pos+int64(i)*consumequeue.UnitSize, units.At(i)); err != nil {
				return err
			}
		}
		pos += int64(units.Len()) * consumequeue.UnitSize
	}
	return nil
}
