package contract

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
)

var (
	host       = effects.Page{Pool: 1, Index: 3, Length: 10, Generation: 8}
	secondHost = effects.Page{Pool: 1, Index: 4, Length: 10, Generation: 8}
)

// copySteps begins to copy a page for a command.
func copySteps() []any {
	return []any{
		&effects.Publish{Pages: []effects.Page{page}}, &effects.Command{Ticket: 6},
		&effects.Publish{Pages: []effects.Page{host}},
		&effects.Copy{Corr: 2, Pairs: []effects.CopyPair{{From: page, To: host}}},
	}
}

// Until a copy is settled nobody else touches what it stores into, and nobody gets what it reads; memory
// comes back once, after the outcome.
func TestCopies(t *testing.T) {
	checkStreams(t, []testStream{
		{name: "copied and delivered", stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2, Settled: true},
			&effects.Deliver{Ticket: 6, Pages: []effects.Page{page}})},
		{name: "copied late", stream: appendSteps(copySteps(),
			&effects.Deliver{Ticket: 6, Code: effects.Expired, Held: true, Pages: []effects.Page{page}},
			&effects.CopyDone{Corr: 2, Code: effects.Cancelled}, &effects.Settled{Corr: 2}, &effects.Return{Ticket: 6})},
		{name: "returned twice", stream: appendSteps(copySteps(), &effects.Deliver{Ticket: 6, Held: true},
			&effects.Return{Ticket: 6}, &effects.Return{Ticket: 6}), by: Machine, story: "not held"},
		{name: "returned before the outcome", stream: appendSteps(copySteps(), &effects.Return{Ticket: 6}), by: Machine,
			story: "before its outcome"},
		{name: "given back while it is copied",
			stream: appendSteps(copySteps(), &effects.Deliver{Ticket: 6, Pages: []effects.Page{page}}), by: Machine,
			story: "1 copies read it"},
		{name: "a new life while it is copied", stream: appendSteps(copySteps(), &effects.Publish{Pages: []effects.Page{nextGeneration}}),
			by: Machine, story: "which is copied"},
		{name: "a new life while it is copied to",
			stream: appendSteps(copySteps(), &effects.Publish{Pages: []effects.Page{{Pool: 1, Index: 3, Generation: 9}}}),
			by:     Machine, story: "into which 2 stores"},
		{name: "lent before it was copied to",
			stream: appendSteps(copySteps(), &effects.Grant{ID: 4, Read: true, Pages: []effects.Page{host}}), by: Machine,
			story: "into which 2 stores"},
		{name: "lent before that is settled", stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2, Code: effects.Faulted},
			&effects.Grant{ID: 4, Read: true, Pages: []effects.Page{host}}), by: Machine, story: "into which 2 stores"},
		{name: "lent when it was copied",
			stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2, Settled: true},
				&effects.Grant{ID: 4, Read: true, Pages: []effects.Page{host}})},
		{name: "two copies to one page",
			stream: appendSteps(copySteps(), &effects.Copy{Corr: 3, Pairs: []effects.CopyPair{{From: page, To: host}}}), by: Machine,
			story: "into which 2 stores"},
		{name: "two copies of one page", stream: appendSteps(copySteps(), &effects.Publish{Pages: []effects.Page{secondHost}},
			&effects.Copy{Corr: 3, Pairs: []effects.CopyPair{{From: page, To: secondHost}}},
			&effects.CopyDone{Corr: 3, Settled: true},
			&effects.CopyDone{Corr: 2, Settled: true})},
		{name: "copied to another life",
			stream: appendSteps(copySteps(), &effects.Copy{Corr: 3, Pairs: []effects.CopyPair{{From: page, To: secondHost}}}), by: Machine,
			story: "newest published"},
		{name: "copied to itself",
			stream: appendSteps(copySteps(), &effects.Copy{Corr: 3, Pairs: []effects.CopyPair{{From: page, To: page}}}), by: Machine,
			story: "to itself"},
		{name: "nothing copied", stream: []any{&effects.Copy{Corr: 3}}, by: Machine, story: "copies nothing"},
		{name: "fewer bytes copied", stream: appendSteps(copySteps(),
			&effects.Copy{Corr: 3, Pairs: []effects.CopyPair{{From: page,
				To: effects.Page{Pool: 1, Index: 3, Length: 9, Generation: 8}}}}),
			by: Machine, story: "10 bytes of page 3 to 9"},
		{name: "a copy ends well but unsettled", stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2}), by: Driver,
			story: "no legal ending"},
		{name: "a copy ends as expired",
			stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2, Code: effects.Expired, Settled: true}), by: Driver,
			story: "no legal ending"},
		{name: "copied twice", stream: appendSteps(copySteps(), &effects.CopyDone{Corr: 2, Settled: true},
			&effects.CopyDone{Corr: 2, Settled: true}), by: Driver, story: "a second time"},
	})
}
