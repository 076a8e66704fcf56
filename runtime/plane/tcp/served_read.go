package tcp

import (
	"syscall"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// serveReads writes the pages of the peer's reads to a stream, until the stream or the link ends.
func (r *receiver) serveReads(st *stream) {
	for {
		s, pages, ok := r.reads.takeRun()
		if !ok {
			return
		}
		if !s.BeginPairs(pages.first, pages.pages) {
			continue
		}
		whole, code := r.sendRun(st, s, pages)
		s.EndPairs(pages.first, pages.pages, whole, code)
		if code == effects.PeerLost {
			return
		}
	}
}

// sendRun writes the pages of a run, and returns the number of completely written pages. If the lease is revoked
// meanwhile, the rest of the current page is filled with zeros, because the peer was told the page's length and must
// find the next header behind the page.
func (r *receiver) sendRun(st *stream, s *link.ServedRead, run pageRun) (whole int, code effects.Code) {
	if err := st.conn.SetWriteDeadline(time.Now().Add(r.in.Bounds().StallTimeout)); err != nil {
		return 0, effects.PeerLost
	}
	pairs := s.Pairs()[run.first : run.first+run.pages]
	for i, pair := range pairs {
		st.setHeader(i, s.Number(), uint32(run.first+i), pair.Local.Length)
	}
	claim := s.Claim()
	whole, n, err := st.sendRun(pairs, func(i int) []byte { return claim.Hold(run.first + i) }, claim.Release)
	switch {
	case err != nil:
		return 0, effects.PeerLost
	case whole == len(pairs):
		return whole, effects.OK
	case n > 0:
		head := st.headers[whole*pageHeaderBytes:][:pageHeaderBytes]
		rest := pageHeaderBytes + int(pairs[whole].Local.Length) - max(n, pageHeaderBytes)
		if err := st.sendZeros(head[min(n, pageHeaderBytes):], rest); err != nil {
			return 0, effects.PeerLost
		}
	}
	return whole, effects.Withdrawn
}

// sendRun writes pages, each behind its header. The results are the number of completely written pages, and the number
// of written bytes of the next page. If hold returns nil, which means that the pages must not be read any more,
// sendRun returns early and without an error. Like storePage, it holds pages only for a single write that does not
// block, so that a peer that takes no bytes cannot keep a page from the owner (M3).
func (s *stream) sendRun(pairs []effects.Pair, hold func(i int) []byte, unhold func()) (whole, n int, err error) {
	if s.tls != nil {
		return s.sendCopied(pairs, hold, unhold)
	}
	var sendErr error
	err = s.raw.Write(func(fd uintptr) bool {
		for whole < len(pairs) {
			held := s.holdParts(pairs, whole, n, hold)
			if held == 0 {
				return true
			}
			wrote, e := s.sendmsg(int(fd), s.parts)
			for range held {
				unhold()
			}
			switch e {
			case nil:
				whole, n = skipWhole(pairs, whole, n+wrote)
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				sendErr = e
				return true
			}
		}
		return true
	})
	if err == nil {
		err = sendErr
	}
	return whole, n, err
}

// skipWhole returns the position that lies n bytes behind the start of the header of page from: the number of pages
// before it, and the bytes of the next page.
func skipWhole(pairs []effects.Pair, from, n int) (whole, rest int) {
	for from < len(pairs) && n >= pageHeaderBytes+int(pairs[from].Local.Length) {
		n -= pageHeaderBytes + int(pairs[from].Local.Length)
		from++
	}
	return from, n
}

// sendCopied is sendRun with TLS. Parts of pages are copied within holds, and encrypted and written outside of them.
func (s *stream) sendCopied(pairs []effects.Pair, hold func(i int) []byte, unhold func()) (whole, n int, err error) {
	for whole < len(pairs) {
		held := s.holdParts(pairs, whole, n, hold)
		if held == 0 {
			break
		}
		s.writeCopy = s.writeCopy[:0]
		for _, part := range s.parts {
			s.writeCopy = append(s.writeCopy, part...)
		}
		for range held {
			unhold()
		}
		if _, err := s.tls.Write(s.writeCopy); err != nil {
			return whole, n, err
		}
		whole, n = skipWhole(pairs, whole, n+len(s.writeCopy))
	}
	return whole, n, s.flush()
}

// holdParts collects the parts that are written next: beginning n bytes behind the start of the first page's header,
// with at most maxHoldBytes of pages. The result is the number of held pages, which is zero if the first page must not
// be read any more.
func (s *stream) holdParts(pairs []effects.Pair, from, n int, hold func(i int) []byte) (held int) {
	s.parts = s.parts[:0]
	for bytes := 0; from < len(pairs) && bytes < maxHoldBytes; from, n = from+1, 0 {
		page := hold(from)
		if page == nil {
			break // Pages that are held already are written, because the lease stood when the hold began.
		}
		held++
		head, at := s.headers[from*pageHeaderBytes:][:pageHeaderBytes], max(n-pageHeaderBytes, 0)
		part := page[at:min(int(pairs[from].Local.Length), at+maxHoldBytes-bytes)]
		s.parts = append(s.parts, head[min(n, pageHeaderBytes):], part)
		bytes += len(part)
		if at+len(part) < int(pairs[from].Local.Length) {
			break
		}
	}
	return held
}

// sendZeros writes head and length zeros.
func (s *stream) sendZeros(head []byte, length int) error {
	if _, err := s.conn.Write(head); err != nil {
		return err
	}
	zeros := make([]byte, min(length, 64<<10))
	for length > 0 {
		n, err := s.conn.Write(zeros[:min(length, len(zeros))])
		if err != nil {
			return err
		}
		length -= n
	}
	return s.flush()
}
