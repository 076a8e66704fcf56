package runtime

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/runtime/config"
)

// RecallPeer is where a receiver listens that lets itself be recalled from: as for a Put, and its pd_peer_query_port.
type RecallPeer struct {
	Host      string // pd_peer_host: an address or a name
	InitPort  uint16 // one of pd_peer_init_port
	AllocPort uint16 // one of pd_peer_alloc_port, of the same rank
	QueryPort uint16 // one of pd_peer_query_port, of the same rank
}

// Recall names chunks that an engine would have back from a receiver that may still have them: chunk i is to be read
// into page First+i of Pages.
type Recall struct {
	Peer    RecallPeer
	Request string // the proxy's id of the request, for people at the other end; may be empty
	Keys    []string
	// Pages are from Reserve. They are the recall's until RecallResult.Returned, and what they held is lost.
	Pages    *Pages
	First    int           // the page of the first chunk
	Patience time.Duration // 0: the configured recall.timeout. A context's deadline that is earlier counts instead
}

// RecallResult is what a Recall came to.
type RecallResult struct {
	// Hits is how many chunks came, from the first key on. What the pages of the others hold now means nothing.
	Hits int
	// Lengths are the bytes of each of those in its page: all of it, but for a chunk that is not full.
	Lengths []int

	lots []*lot // of the parts, in their order
}

// Returned is closed once nothing stores into the pages of this recall any more, whatever its outcome: until then
// nobody else may use them. It nearly always is when Recall returns; not where the time was over in the middle of a
// read. Pages.Release waits for the same.
func (r RecallResult) Returned() <-chan struct{} {
	for _, l := range r.lots {
		if !l.isReturned() {
			return l.Returned() // Parts go one after the other: at most the last one is under way.
		}
	}
	return nothingLent
}

// Recall reads back the longest prefix of chunks that a receiver still has, and returns when that is over. Nothing is
// consumed at the receiver: what it keeps for requests it keeps, and what nobody expects stays for the next who asks.
// The error is nil where nothing came because nothing is there; then compute.
//
// With an error the pages up to Hits are right all the same: a recall of more chunks than limits.keys_per_batch, or
// than one message of limits.message_bytes can name, goes in parts, one after the other, until one comes short; an
// error is that of the last. Each part comes whole or not at all. What is missing must be computed; to try again makes
// sense where the code is TooMany or Unreachable. A receiver without pd_bidirectional, or a vanilla LMCache one, ends
// it as Unsupported. The end of ctx aborts it.
func (s Sender) Recall(ctx context.Context, c Recall) (RecallResult, error) {
	n := s.node
	if err := n.checkRecall(&c); err != nil {
		return RecallResult{}, err
	}
	res, until := RecallResult{}, time.Now().Add(time.Duration(n.cfg.RecallTimeout))
	if c.Patience > 0 {
		until = time.Now().Add(c.Patience)
	}
	request, keys := []byte(c.Request), keyBytes(c.Keys)
	for res.Hits < len(keys) {
		fits := n.machine.RecallFits(request, keys[res.Hits:]) // Of the configuration alone, so not the loop's to ask.
		if fits == 0 {
			return res, tooLarge("recall", "Keys["+strconv.Itoa(res.Hits)+"]",
				strconv.Itoa(len(keys[res.Hits]))+" bytes", "what a message holds",
				"raise limits.message_bytes at both ends, or shorten the model's name")
		}
		at := c.First + res.Hits
		body := &recall.Recall{
			Peer: recall.Peer(c.Peer), Request: request, Keys: keys[res.Hits : res.Hits+fits],
			Pages:    append([]effects.Page(nil), c.Pages.pages[at:at+fits]...),
			Patience: patienceOf(ctx, max(time.Until(until), 1), 0),
		}
		begun, err := c.Pages.lend("recall", func() (*lot, error) {
			return n.submitAll("recall", work, []effects.CommandBody{body}, func([]*Ticket) {})
		})
		if err != nil {
			return res, err
		}
		res.lots = append(res.lots, begun)
		out := n.awaitAll(ctx, begun, abortOf)[0]
		if out.Code != effects.OK {
			code, cause := endOf(ctx, out.Code)
			return res, (&Error{Op: "recall", Code: code, Count: len(keys) - res.Hits, Cause: cause}).because(out.Why)
		}
		for _, page := range out.Pages[:out.Hits] {
			res.Lengths = append(res.Lengths, int(page.Length))
		}
		if res.Hits += out.Hits; out.Hits < fits {
			break
		}
	}
	return res, nil
}

// checkRecall says what is wrong with a recall.
func (n *Node) checkRecall(c *Recall) error {
	if err := n.wantSide("recall", config.Sender); err != nil {
		return err
	}
	if !n.cfg.Recalls {
		e := wrong("recall", "pd_bidirectional", "false", "true", "set pd_bidirectional: true here and at the receiver")
		e.Code = effects.Unsupported
		return e
	}
	if c.Pages == nil || c.Pages.node != n || !c.Pages.own {
		given := "nil"
		if c.Pages != nil {
			if given = "of another node"; c.Pages.node == n {
				given = "of a Get, which others may read"
			}
		}
		return wrong("recall", "Pages", given, "a handle of this node", "reserve them from this Sender")
	}
	if err := plainHost("recall", "Peer.Host", &c.Peer.Host); err != nil {
		return err
	}
	count, pages := len(c.Keys), c.Pages.Len()
	switch {
	case c.Peer.Host == "":
		return wrong("recall", "Peer.Host", "empty", "a host", "name where the receiver listens: its pd_peer_host")
	case c.Peer.InitPort == 0:
		return wrong("recall", "Peer.InitPort", "0", "a port", "give the receiver's pd_peer_init_port")
	case c.Peer.AllocPort == 0:
		return wrong("recall", "Peer.AllocPort", "0", "a port", "give the receiver's pd_peer_alloc_port")
	case c.Peer.QueryPort == 0:
		return wrong("recall", "Peer.QueryPort", "0", "a port", "give the receiver's pd_peer_query_port")
	case count == 0:
		return wrong("recall", "Keys", "empty", "at least one", "name each chunk by its key")
	case count > pages:
		return wrong("recall", "len(Keys)", strconv.Itoa(count), "at most "+strconv.Itoa(pages),
			"the handle has no page for each: reserve as many as there are keys")
	case c.First < 0 || c.First > pages-count:
		return wrong("recall", "First", strconv.Itoa(c.First), upTo(0, pages-count), "each key takes a page from there on")
	case c.Patience < 0:
		return wrong("recall", "Patience", fmt.Sprint(c.Patience), "0 or more", "leave it 0 for recall.timeout")
	case len(c.Request) > int(n.cfg.RequestIDMax):
		return tooLarge("recall", "Request", strconv.Itoa(len(c.Request))+" bytes",
			"at most "+strconv.Itoa(int(n.cfg.RequestIDMax)), "shorten it, or raise limits.request_bytes")
	}
	return n.checkKeys("recall", c.Keys)
}
