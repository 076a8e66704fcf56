package tcp

import (
	"fmt"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// receivePages receives the pages of our reads from a stream.
func (s *sender) receivePages(st *stream) error {
	var read *link.Read // the read of the newest page; nil if that read has ended
	for {
		number, pair, length, err := st.nextHeader(s.out.PeerBuffer().PageBytes)
		if err != nil {
			return err
		}
		if read == nil || read.Number() != number {
			if read, err = s.out.FindRead(number); err != nil {
				return err
			}
		}
		if err := s.storePage(st, read, pair, length); err != nil {
			return err
		}
	}
}

// storePage stores a page, or discards the page if the read is no longer wanted. A page that the peer sends after the
// lease ended is stored, too, but never delivered: the peer's done message then says that the read failed.
func (s *sender) storePage(st *stream, read *link.Read, pair uint32, length int) error {
	if read == nil {
		return st.discardBytes(length)
	}
	if int64(pair) >= int64(len(read.Pairs())) || read.Pairs()[pair].Local.Length != uint32(length) {
		return fmt.Errorf("%w: pair %d of %d bytes was not requested", link.ErrMalformed, pair, length)
	}
	if err := read.BeginPair(int(pair)); err != nil {
		return err
	}
	page := s.localPage(read.Pairs()[pair].Local)
	hold := func() []byte {
		if !read.BeginAccess(1) {
			return nil
		}
		return page
	}
	stored, left, err := st.storePage(length, hold, read.EndAccess)
	switch {
	case err != nil:
		return err
	case !stored:
		return st.discardBytes(left)
	}
	read.PairStored(int(pair))
	return nil
}
