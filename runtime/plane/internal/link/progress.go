package link

import "github.com/kvferry/kvferry/effects"

// progress records how far a batch has come that a peer requested. All methods are called under the plane's mutex.
type progress struct {
	begun, whole   []bool // for each pair
	remaining      int    // pairs that are not whole
	moving         int    // pairs being moved
	stopped, ended bool
	code           effects.Code // why the batch stopped
}

func newProgress(pairs int) progress {
	return progress{begun: make([]bool, pairs), whole: make([]bool, pairs), remaining: pairs}
}

// beginPair reports whether pair i is still wanted and has not been begun, and marks the pair as begun.
func (p *progress) beginPair(i int) bool {
	if p.stopped || p.ended || p.begun[i] {
		return false
	}
	p.begun[i] = true
	p.moving++
	return true
}

// endPair records that pair i is no longer being moved. If the code is OK, the pair is whole; otherwise no further
// pair begins.
func (p *progress) endPair(i int, code effects.Code) {
	p.moving--
	if code != effects.OK {
		p.stopBatch(code)
		return
	}
	p.whole[i] = true
	p.remaining--
}

// stopBatch lets no further pair begin. The first code given is kept as the reason.
func (p *progress) stopBatch(code effects.Code) {
	if !p.stopped {
		p.stopped, p.code = true, code
	}
}

// finishOnce reports, once, that the batch has ended: all pairs are whole, or the batch has stopped and no pair is
// being moved.
func (p *progress) finishOnce() bool {
	if p.ended || p.moving > 0 || p.remaining > 0 && !p.stopped {
		return false
	}
	p.ended = true
	return true
}
