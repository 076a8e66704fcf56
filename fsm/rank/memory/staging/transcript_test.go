package staging

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata are stories of single fetches. Directives:
//
//	room pages=N depth=N staging=N     starts
//	fetch ITEMS [patience=MS] [lease=MS]
//	                                   L is a local item, a digit a remote one of that source
//	read [code=CODE] [unsettled] [late] completes the oldest read
//	settle                             says that the oldest such read touches nothing any more
//	scatter [code=CODE]                completes the oldest scatter
//	abort TICKET / advance MS / drain / withdraw ID / lost LINK
//	take N / free                      other commands take pages, and give them back
//	run                                completes everything, oldest first
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata", func() func(transcript.Directive) string {
		var r *rig
		var taken []effects.Page
		var log strings.Builder
		return func(d transcript.Directive) string {
			log.Reset()
			if r != nil {
				r.t = d.T
			}
			number := func(key string) uint32 { return uint32(d.IntValue(key, 0)) }
			first := func() uint64 { return uint64(d.FirstNumber()) }
			switch d.Cmd {
			case "room":
				r = newRig(d.T, number("pages"), Config{
					Settings: Settings{StagingPages: number("staging")}, Depth: number("depth"),
				})
				r.onEffect = func(e effects.Effect) { describe(&log, e) }
				r.onReport = func(said Report) { printReport(&log, said) }
			case "fetch":
				wait := effects.Duration(1e12)
				if ms := number("patience"); ms > 0 {
					wait = effects.Duration(ms) * effects.Millisecond
				}
				r.lease = never
				if ms := number("lease"); ms > 0 {
					r.lease = r.now.Add(effects.Duration(ms) * effects.Millisecond)
				}
				if _, code := r.open(d.WordAt(0), wait); code != effects.OK {
					fmt.Fprintf(&log, "refused %v\n", code)
				}
			case "read":
				rd := r.oldest(false)
				at := r.now
				if d.HasArg("late") {
					at = r.ReadDeadline(rd.fetch.Sources[rd.source].ID) + 1
				}
				r.readEnds(rd, d.CodeValue(), !d.HasArg("unsettled"), at)
			case "settle":
				r.settleRead(r.oldest(true))
			case "scatter":
				r.scatterEnds(r.scatters[0], d.CodeValue())
			case "abort":
				r.step(func(v *env.Env) { r.p.AbortFetch(v, effects.Ticket(first())) })
			case "advance":
				r.advance(effects.Duration(first()) * effects.Millisecond)
			case "drain":
				r.drain()
			case "withdraw":
				id := first()
				r.step(func(v *env.Env) { r.withdraw(v, table.Handle(id)) })
			case "lost":
				r.lose(effects.Link(first()))
			case "take":
				taken = r.pool.TakePages(uint32(first()), taken)
			case "free":
				for _, page := range taken {
					r.pool.DropRef(page)
				}
				taken = taken[:0]
				r.step(func(*env.Env) {})
			case "run":
				r.run()
			default:
				d.FailUnknown()
			}
			for ticket := effects.Ticket(1); ticket <= r.tickets; ticket++ {
				if is := r.p.SituationOf(ticket); is != NoFetch {
					fmt.Fprintf(&log, "-- #%d: %s, %d staged\n", ticket, SituationNames()[is],
						r.p.fetches.Get(r.p.findFetch(ticket)).stagedPages)
				}
			}
			if r.p.CountUnfinished() == 0 && r.tickets > 0 && len(taken) == 0 {
				r.wantNothingLeft()
				fmt.Fprintln(&log, "-- nothing left")
			}
			if log.Len() == 0 {
				return "ok"
			}
			return log.String()
		}
	})
}

func describe(log *strings.Builder, e effects.Effect) {
	switch e := e.(type) {
	case *effects.Publish:
		fmt.Fprintf(log, "Publish %s\n", indexes(e.Pages))
	case *effects.Transfer:
		fmt.Fprintf(log, "Transfer over link %d:", e.Link)
		for _, pair := range e.Pairs {
			fmt.Fprintf(log, " item %d to page %d", pair.Remote.Generation-1, pair.Local.Index)
		}
		fmt.Fprintln(log)
	case *effects.Scatter:
		fmt.Fprintf(log, "Scatter #%d items from %d: pages %s\n", e.Ticket, e.First, indexes(e.Pages))
	case *effects.Cancel:
		fmt.Fprintln(log, "Cancel")
	case *effects.Deliver:
		fmt.Fprintf(log, "Deliver #%d %v held=%v hits=%d\n", e.Ticket, e.Code, e.Held, e.Hits)
	case *effects.Return:
		fmt.Fprintf(log, "Return #%d\n", e.Ticket)
	default:
		fmt.Fprintf(log, "%T\n", e)
	}
}

func printReport(log *strings.Builder, said Report) {
	switch said.Kind {
	case SourceReleased:
		fmt.Fprintf(log, "(source %d of #%d is released)\n", said.Subject, said.Ticket)
	case LocalReleased:
		fmt.Fprintf(log, "(local %d of #%d is released)\n", said.Subject-100, said.Ticket)
	case Ended:
		fmt.Fprintf(log, "(#%d ended %v)\n", said.Ticket, said.Code)
	}
}

func indexes(pages []effects.Page) string {
	var s []string
	for _, p := range pages {
		s = append(s, fmt.Sprint(p.Index))
	}
	return "[" + strings.Join(s, " ") + "]"
}
