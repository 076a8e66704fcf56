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

// RecallPeer is the address of a receiver that allows recalls: the fields of Peer, and its pd_peer_query_port.
type RecallPeer struct {
	Host      string // pd_peer_host: an address or a name
	InitPort  uint16 // one of pd_peer_init_port
	AllocPort uint16 // one of pd_peer_alloc_port, of the same rank
	QueryPort uint16 // one of pd_peer_query_port, of the same rank
}

// Recall names chunks that an engine wants back from a receiver that may still have them: chunk i is read into
// page First+i of Pages.
type Recall struct {
	Peer    RecallPeer
	Request string // the proxy's id of the request, for the operators of the receiver; may be empty
	Keys    []string
	// Pages are from Reserve. The recall owns the pages until RecallResult.Returned, and their former content is
	// lost.
	Pages   *Pages
	First   int                  // index in Pages of the page of the first chunk
	Timeout time.Duration        // timeout; 0: the configured recall.timeout. An earlier deadline of the context replaces it
	Trace   effects.TraceContext // the caller's span (WithTracer)
}

// RecallResult is the result of a Recall.
type RecallResult struct {
	// Hits is the number of chunks that were read, from the first key on. The content of the other pages is
	// undefined.
	Hits int
	// Lengths are the numbers of valid bytes in the pages of the read chunks: the full page, unless a chunk is
	// partial.
	Lengths []int

	groups []*commandGroup // groups of the parts, in order
}

// Returned returns a channel that is closed when nothing stores into the pages of this recall any more, whatever
// its outcome. Until then the pages must not be used for anything else. The channel is nearly always closed when
// Recall returns; it is still open if the time was over in the middle of a read. Pages.Release waits for the same
// event.
func (r RecallResult) Returned() <-chan struct{} {
	for _, l := range r.groups {
		if !l.isReturned() {
			return l.Returned() // Parts run one after the other, so at most the last part is in flight.
		}
	}
	return closedChan
}

// Recall reads back the longest prefix of chunks that a receiver still has, and returns when the reads are over.
// Recall consumes nothing at the receiver: chunks that are kept for requests stay, and chunks without any claim
// stay for the next recall. If the receiver has none of the chunks, the error is nil and Hits is 0; then the
// engine computes them.
//
// The pages up to Hits are correct also if Recall returns an error. A recall of more chunks than
// limits.keys_per_batch, or than one message of limits.message_bytes can name, runs in parts, one after the other,
// until a part comes short; the error is the error of the last part. Each part is read whole or not at all.
// Missing chunks must be computed. A retry is useful if the code is TooMany or Unreachable. A receiver without
// pd_bidirectional, or a vanilla LMCache receiver, ends the recall as Unsupported. If ctx is cancelled, the recall
// is aborted.
func (s Sender) Recall(ctx context.Context, c Recall) (res RecallResult, err error) {
	n := s.node
	if err := n.checkRecall(&c); err != nil {
		return RecallResult{}, err
	}
	call := n.startCall("kvferry.recall", c.Trace)
	defer func() { call.end(c.Request, res.Hits, err) }()
	until := time.Now().Add(time.Duration(n.times().recall))
	if c.Timeout > 0 {
		until = time.Now().Add(c.Timeout)
	}
	request, keys := []byte(c.Request), keysToBytes(c.Keys)
	for res.Hits < len(keys) {
		// RecallFits depends only on the configuration, so it need not run on the loop.
		fits := n.machine.RecallFits(request, keys[res.Hits:])
		if fits == 0 {
			return res, tooLargeError("recall", "Keys["+strconv.Itoa(res.Hits)+"]",
				strconv.Itoa(len(keys[res.Hits]))+" bytes", "at most the size of a message",
				"raise limits.message_bytes at both ends, or shorten the model's name")
		}
		at := c.First + res.Hits
		body := &recall.Recall{
			Peer: recall.Peer(c.Peer), Request: request, Keys: keys[res.Hits : res.Hits+fits],
			Pages:   append([]effects.Page(nil), c.Pages.pages[at:at+fits]...),
			Timeout: commandTimeout(ctx, max(time.Until(until), 1), 0), Trace: call.trace.Context,
		}
		group, err := c.Pages.lendPages("recall", func() (*commandGroup, error) {
			return n.submitAll("recall", classWork, []effects.CommandBody{body}, func([]*Ticket) {})
		})
		if err != nil {
			return res, err
		}
		res.groups = append(res.groups, group)
		out := n.awaitAll(ctx, group, newAbort)[0]
		if out.Code != effects.OK {
			code, cause := callerCode(ctx, out.Code)
			return res, (&Error{Op: "recall", Code: code, Count: len(keys) - res.Hits, Cause: cause}).withDetails(out.Details)
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

// checkRecall returns an error if the node cannot recall, or if a field of c is invalid.
func (n *Node) checkRecall(c *Recall) error {
	if err := n.requireSide("recall", config.Sender); err != nil {
		return err
	}
	if !n.cfg.Recalls {
		e := argumentError("recall", "pd_bidirectional", "false", "true", "set pd_bidirectional: true here and at the receiver")
		e.Code = effects.Unsupported
		return e
	}
	if c.Pages == nil || c.Pages.node != n || !c.Pages.writable {
		given := "nil"
		if c.Pages != nil {
			if given = "of another node"; c.Pages.node == n {
				given = "from a Get, which other readers may share"
			}
		}
		return argumentError("recall", "Pages", given, "a handle of this node", "reserve them from this Sender")
	}
	if err := normalizeHost("recall", "Peer.Host", &c.Peer.Host); err != nil {
		return err
	}
	count, pages := len(c.Keys), c.Pages.Len()
	switch {
	case c.Peer.Host == "":
		return argumentError("recall", "Peer.Host", "empty", "a host", "give the receiver's pd_peer_host")
	case c.Peer.InitPort == 0:
		return argumentError("recall", "Peer.InitPort", "0", "a port", "give the receiver's pd_peer_init_port")
	case c.Peer.AllocPort == 0:
		return argumentError("recall", "Peer.AllocPort", "0", "a port", "give the receiver's pd_peer_alloc_port")
	case c.Peer.QueryPort == 0:
		return argumentError("recall", "Peer.QueryPort", "0", "a port", "give the receiver's pd_peer_query_port")
	case count == 0:
		return argumentError("recall", "Keys", "empty", "at least one", "name each chunk by its key")
	case count > pages:
		return argumentError("recall", "len(Keys)", strconv.Itoa(count), "at most "+strconv.Itoa(pages),
			"the handle has too few pages: reserve one page for each key")
	case c.First < 0 || c.First > pages-count:
		return argumentError("recall", "First", strconv.Itoa(c.First), formatRange(0, pages-count),
			"the handle needs a page for each key, from this index on")
	case c.Timeout < 0:
		return argumentError("recall", "Timeout", fmt.Sprint(c.Timeout), "0 or more", "set 0 for recall.timeout")
	case len(c.Request) > int(n.cfg.RequestIDMax):
		return tooLargeError("recall", "Request", strconv.Itoa(len(c.Request))+" bytes",
			"at most "+strconv.Itoa(int(n.cfg.RequestIDMax)), "shorten it, or raise limits.request_bytes")
	}
	return n.checkKeys("recall", c.Keys)
}
