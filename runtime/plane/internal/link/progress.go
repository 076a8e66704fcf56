package link

import "github.com/kvferry/kvferry/effects"

// progress is how far a batch has come that a peer asked for. It is used under the plane's mutex.
type progress struct {
	begun, whole   []bool // for each pair
	left           int    // pairs that are not whole
	busy           int    // pairs under way
	stopped, ended bool
	code           effects.Code // why it stopped
}

func newProgress(pairs int) progress {
	return progress{begun: make([]bool, pairs), whole: make([]bool, pairs), left: pairs}
}

// begin reports whether pair i is wanted, and has not been begun.
func (p *progress) begin(i int) bool {
	if p.stopped || p.ended || p.begun[i] {
		return false
	}
	p.begun[i] = true
	p.busy++
	return true
}

// end says that pair i is not under way any more: whole if the code is OK, else nothing further is begun.
func (p *progress) end(i int, code effects.Code) {
	p.busy--
	if code != effects.OK {
		p.stop(code)
		return
	}
	p.whole[i] = true
	p.left--
}

// stop lets no further pair begin. The first reason counts.
func (p *progress) stop(code effects.Code) {
	if !p.stopped {
		p.stopped, p.code = true, code
	}
}

// over reports, once, that all is whole, or that it has stopped and nothing is under way.
func (p *progress) over() bool {
	if p.ended || p.busy > 0 || p.left > 0 && !p.stopped {
		return false
	}
	p.ended = true
	return true
}
