package rank

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// listingDirective prints what operators see of a rank, and returns false for any other directive.
func (r *rig) listingDirective(cmd, name string) bool {
	switch cmd {
	case "peers":
		for _, p := range r.node(name).rank.AppendPeers(nil) {
			fmt.Fprintln(&r.log, r.peerText(&p))
		}
	case "operations":
		for _, x := range r.node(name).rank.AppendOperations(nil) {
			fmt.Fprintf(&r.log, "%s, %s:%s chunks=%d pages=%d age=%v%s%s\n", x.Kind, x.Stage, r.nameOf(x.Peer), x.Chunks, x.Pages,
				r.now.Sub(x.Since), r.left(" ends in ", x.Until), textIf(x.Delivered, " delivered"))
		}
	case "holds":
		for _, h := range r.node(name).rank.AppendHolds(nil) {
			fmt.Fprintf(&r.log, "%s:%s pages=%d age=%v%s%s\n", h.Kind, r.nameOf(h.Peer), h.Pages, r.now.Sub(h.Since),
				r.left(" ends in ", h.Until), textIf(h.Revoked, " revoked"))
		}
	default:
		return false
	}
	return true
}

func (r *rig) peerText(p *Peer) string {
	var b strings.Builder
	if p.Outbound {
		fmt.Fprintf(&b, "to %s:%d:%d", p.Host, p.InitPort, p.AllocPort)
	} else {
		fmt.Fprintf(&b, "from %q", p.Name)
	}
	fmt.Fprintf(&b, "%s, %s%s%s", r.nameOf(p.ID), p.State, r.ago(" for ", p.Since), r.ago(", heard ", p.HeardAt))
	if p.Plane != "" {
		fmt.Fprintf(&b, ", plane %s", p.Plane)
	}
	if p.Failures > 0 {
		fmt.Fprintf(&b, ", %d failures, %v (%s)%s", p.Failures, p.Cause, p.Why.Text(p.Cause), r.left(", again in ", p.RetryAt))
	}
	if x := p.Breaker; x != nil {
		fmt.Fprintf(&b, ", breaker of %d chunks: %v%s", x.MinChunks, x.Code, r.left(", ends in ", x.Until))
	}
	fmt.Fprintf(&b, ", operations=%d requests=%d granted=%d from it=%d", p.Operations, p.InFlight, p.PagesGranted, p.PagesFromPeer)
	return b.String()
}

// nameOf returns the name of the rank that has an incarnation.
func (r *rig) nameOf(id effects.Incarnation) string {
	for _, n := range r.nodes {
		if own := n.rank.Incarnation(); bytes.Equal(own[:4], id[:4]) {
			return " " + n.name
		}
	}
	return textIf(id != effects.Incarnation{}, " unknown")
}

func (r *rig) ago(what string, at effects.Time) string {
	return textIf(at != 0, what+r.now.Sub(at).String())
}

func (r *rig) left(what string, at effects.Time) string {
	return textIf(at != 0, what+at.Sub(r.now).String())
}

func textIf(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// checkListings checks that what operators see of a rank is what its tables count, and that its times are plausible.
func checkListings(t fatal, r *Rank, now effects.Time) {
	t.Helper()
	s, count := r.Stats(), map[string]int{}
	check := func(what string, since, until effects.Time) {
		if since <= 0 || since > now || until != 0 && until < since {
			t.Fatalf("%s of %v to %v, and it is %v", what, since, until, now)
		}
	}
	for _, x := range r.AppendOperations(nil) {
		check(x.Kind+" "+x.Stage, x.Since, x.Until)
		count[x.Kind]++
		if x.Kind == "receive" && x.Stage == "waiting for pages" {
			count[x.Stage]++
		}
	}
	operations := 0
	for _, p := range r.AppendPeers(nil) {
		switch {
		case p.Outbound && p.State == "no link":
			if p.Breaker == nil {
				t.Fatalf("an address without a link and without a breaker: %+v", p)
			}
		case p.Outbound:
			count["to"]++
			check("the state "+p.State, p.Since, p.RetryAt)
		case p.State == "plain":
		default:
			count["from"]++
			check("hearing of a peer", p.HeardAt, 0)
		}
		operations += p.Operations
		if p.HeardAt > now || p.InFlight < 0 || p.PagesGranted < 0 || p.PagesFromPeer < 0 {
			t.Fatalf("a peer is %+v", p)
		}
	}
	for _, h := range r.AppendHolds(nil) {
		check("a hold "+string(h.Kind), h.Since, h.Until)
	}
	for _, c := range []struct {
		what string
		want int
	}{{"put", s.Puts}, {"get", s.Gets}, {"fetch", s.Fetches}, {"layerwise", s.Layers}, {"waiting for pages", s.PendingRequests},
		{"to", s.OutboundPeers}, {"from", s.InboundPeers}} {
		if count[c.what] != c.want {
			t.Fatalf("%d rows of %q are listed, and there are %d", count[c.what], c.what, c.want)
		}
	}
	if total := len(r.AppendOperations(nil)); operations > total {
		t.Fatalf("%d operations are with peers, of %d", operations, total)
	}
}
