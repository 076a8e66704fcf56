package effects

// Effects collects the effects of one step, in order. The zero value is ready to use. A driver reuses one Effects for
// all steps, so that a steady state allocates nothing.
type Effects struct {
	order []slot

	opens     []Open
	closes    []Close
	sends     []Send
	posts     []Post
	replies   []Reply
	imports   []Import
	drops     []Drop
	publishes []Publish
	grants    []Grant
	revokes   []Revoke
	transfers []Transfer
	copies    []Copy
	stores    []Store
	verifies  []Verify
	cancels   []Cancel
	confirms  []Confirm
	scatters  []Scatter
	delivers  []Deliver
	returns   []Return
	observes  []Observe

	marks []Mark

	// Arenas behind the spans of the effects above. A span keeps pointing at the array from which it was cut, so growth
	// of an arena never invalidates a span.
	bytes     []byte
	pages     []Page
	pairs     []Pair
	copyPairs []CopyPair
	reports   []Report
}

// A slot is the position of an effect: its kind and its index in the slice of that kind.
type slot struct {
	kind  Kind
	index uint32
}

// Reset removes all effects and keeps the memory for the next step.
func (o *Effects) Reset() {
	o.order = o.order[:0]
	o.opens, o.closes, o.sends, o.posts = o.opens[:0], o.closes[:0], o.sends[:0], o.posts[:0]
	o.replies, o.imports, o.drops = o.replies[:0], o.imports[:0], o.drops[:0]
	o.publishes, o.grants, o.revokes = o.publishes[:0], o.grants[:0], o.revokes[:0]
	o.transfers, o.copies, o.cancels, o.confirms = o.transfers[:0], o.copies[:0], o.cancels[:0], o.confirms[:0]
	o.stores, o.verifies = o.stores[:0], o.verifies[:0]
	o.scatters, o.delivers, o.returns, o.observes = o.scatters[:0], o.delivers[:0], o.returns[:0], o.observes[:0]
	o.marks = o.marks[:0]
	o.bytes, o.pages, o.pairs, o.copyPairs = o.bytes[:0], o.pages[:0], o.pairs[:0], o.copyPairs[:0]
	o.reports = o.reports[:0]
}

// Len returns the number of effects; marks are not counted.
func (o *Effects) Len() int { return len(o.order) }

// At returns effect i as a pointer that is valid until Reset.
func (o *Effects) At(i int) Effect {
	s := o.order[i]
	switch s.kind {
	case KindOpen:
		return &o.opens[s.index]
	case KindClose:
		return &o.closes[s.index]
	case KindSend:
		return &o.sends[s.index]
	case KindPost:
		return &o.posts[s.index]
	case KindReply:
		return &o.replies[s.index]
	case KindImport:
		return &o.imports[s.index]
	case KindDrop:
		return &o.drops[s.index]
	case KindPublish:
		return &o.publishes[s.index]
	case KindGrant:
		return &o.grants[s.index]
	case KindRevoke:
		return &o.revokes[s.index]
	case KindTransfer:
		return &o.transfers[s.index]
	case KindCancel:
		return &o.cancels[s.index]
	case KindConfirm:
		return &o.confirms[s.index]
	case KindDeliver:
		return &o.delivers[s.index]
	case KindReturn:
		return &o.returns[s.index]
	case KindObserve:
		return &o.observes[s.index]
	case KindScatter:
		return &o.scatters[s.index]
	case KindCopy:
		return &o.copies[s.index]
	case KindStore:
		return &o.stores[s.index]
	case KindVerify:
		return &o.verifies[s.index]
	}
	panic("BUG: effect of unknown kind")
}

// Marks returns the coverage marks of this step.
func (o *Effects) Marks() []Mark { return o.marks }

// Mark records a coverage mark.
func (o *Effects) Mark(m Mark) { o.marks = append(o.marks, m) }

// addSlot appends the newest effect of a kind to the order; n is the number of effects of that kind.
func (o *Effects) addSlot(k Kind, n int) {
	o.order = append(o.order, slot{kind: k, index: uint32(n - 1)})
}

// Each method below appends one effect. Slices in its arguments are copied into the arenas, except bodies made with
// Arena and Cut, which are in the arena already, and the Bytes of a Store.

// Open appends an Open.
func (o *Effects) Open(e Open) { o.opens = append(o.opens, e); o.addSlot(KindOpen, len(o.opens)) }

// Close appends a Close.
func (o *Effects) Close(c Conn) {
	o.closes = append(o.closes, Close{c})
	o.addSlot(KindClose, len(o.closes))
}

// Send appends a Send. Its Body must come from Arena and Cut; the list of pages that it carries is copied.
func (o *Effects) Send(e Send) {
	e.Carries = o.CopyPages(e.Carries)
	o.sends = append(o.sends, e)
	o.addSlot(KindSend, len(o.sends))
}

// Post appends a Post. Its Body must come from Arena and Cut.
func (o *Effects) Post(e Post) { o.posts = append(o.posts, e); o.addSlot(KindPost, len(o.posts)) }

// Reply appends a Reply. Its Body must come from Arena and Cut.
func (o *Effects) Reply(e Reply) {
	o.replies = append(o.replies, e)
	o.addSlot(KindReply, len(o.replies))
}

// Import appends an Import; its Blob is copied.
func (o *Effects) Import(e Import) {
	e.Blob = o.Cut(append(o.Arena(), e.Blob...))
	o.imports = append(o.imports, e)
	o.addSlot(KindImport, len(o.imports))
}

// Drop appends a Drop.
func (o *Effects) Drop(l Link) { o.drops = append(o.drops, Drop{l}); o.addSlot(KindDrop, len(o.drops)) }

// Publish appends a Publish of pages, which are copied.
func (o *Effects) Publish(pages []Page) {
	o.publishes = append(o.publishes, Publish{o.CopyPages(pages)})
	o.addSlot(KindPublish, len(o.publishes))
}

// Grant appends a Grant; its Pages are copied.
func (o *Effects) Grant(e Grant) {
	e.Pages = o.CopyPages(e.Pages)
	o.grants = append(o.grants, e)
	o.addSlot(KindGrant, len(o.grants))
}

// Revoke appends a Revoke.
func (o *Effects) Revoke(g GrantID) {
	o.revokes = append(o.revokes, Revoke{g})
	o.addSlot(KindRevoke, len(o.revokes))
}

// Transfer appends a Transfer; its Pairs and the pages of its Gather are copied.
func (o *Effects) Transfer(e Transfer) {
	start := len(o.pairs)
	o.pairs = append(o.pairs, e.Pairs...)
	e.Pairs = o.pairs[start:len(o.pairs):len(o.pairs)]
	e.Gather.Pages = o.CopyPages(e.Gather.Pages)
	o.transfers = append(o.transfers, e)
	o.addSlot(KindTransfer, len(o.transfers))
}

// Copy appends a Copy; its Pairs are copied.
func (o *Effects) Copy(e Copy) {
	start := len(o.copyPairs)
	o.copyPairs = append(o.copyPairs, e.Pairs...)
	e.Pairs = o.copyPairs[start:len(o.copyPairs):len(o.copyPairs)]
	o.copies = append(o.copies, e)
	o.addSlot(KindCopy, len(o.copies))
}

// Store appends a Store; its Bytes are not copied.
func (o *Effects) Store(e Store) { o.stores = append(o.stores, e); o.addSlot(KindStore, len(o.stores)) }

// Verify appends a Verify; its Pages are copied.
func (o *Effects) Verify(e Verify) {
	e.Pages = o.CopyPages(e.Pages)
	o.verifies = append(o.verifies, e)
	o.addSlot(KindVerify, len(o.verifies))
}

// Cancel appends a Cancel.
func (o *Effects) Cancel(c Corr) {
	o.cancels = append(o.cancels, Cancel{c})
	o.addSlot(KindCancel, len(o.cancels))
}

// Confirm appends a Confirm.
func (o *Effects) Confirm(l Landing, code Code) {
	o.confirms = append(o.confirms, Confirm{l, code})
	o.addSlot(KindConfirm, len(o.confirms))
}

// Scatter appends a Scatter; its Pages are copied.
func (o *Effects) Scatter(e Scatter) {
	e.Pages = o.CopyPages(e.Pages)
	o.scatters = append(o.scatters, e)
	o.addSlot(KindScatter, len(o.scatters))
}

// Deliver appends a Deliver; its Pages are copied.
func (o *Effects) Deliver(e Deliver) {
	e.Pages = o.CopyPages(e.Pages)
	o.delivers = append(o.delivers, e)
	o.addSlot(KindDeliver, len(o.delivers))
}

// Return appends a Return.
func (o *Effects) Return(t Ticket) {
	o.returns = append(o.returns, Return{t})
	o.addSlot(KindReturn, len(o.returns))
}

// Observe appends an Observe. Its Report must come from CopyReport.
func (o *Effects) Observe(e Observe) {
	o.observes = append(o.observes, e)
	o.addSlot(KindObserve, len(o.observes))
}

// CopyReport copies a report into the arena and returns the copy.
func (o *Effects) CopyReport(r Report) *Report {
	o.reports = append(o.reports, r)
	return &o.reports[len(o.reports)-1]
}

// Arena returns the byte arena, to which the caller appends a body. Cut takes the result back and returns the body
// alone:
//
//	body := out.Cut(message.Append(out.Arena()))
//
// Between the two calls nothing else may use the arena.
func (o *Effects) Arena() []byte { return o.bytes }

// Cut completes what Arena began and returns the bytes that were appended.
func (o *Effects) Cut(b []byte) []byte {
	start := len(o.bytes)
	o.bytes = b
	return b[start:len(b):len(b)]
}

// CopyPages copies pages into the arena and returns the copy.
func (o *Effects) CopyPages(pages []Page) []Page {
	if len(pages) == 0 {
		return nil
	}
	start := len(o.pages)
	o.pages = append(o.pages, pages...)
	return o.pages[start:len(o.pages):len(o.pages)]
}

// Scribble overwrites every span with garbage, to expose a driver or machine that kept one. Only the simulator and
// tests call it, before Reset.
func (o *Effects) Scribble() {
	if len(o.bytes) > 0 {
		o.bytes[0] = 0xDB
		for n := 1; n < len(o.bytes); n *= 2 {
			copy(o.bytes[n:], o.bytes[:n])
		}
	}
	for i := range o.pages {
		o.pages[i] = Page{Pool: 0xDBDB, Index: 0xDBDBDBDB, Generation: 0xDBDBDBDB}
	}
	for i := range o.pairs {
		o.pairs[i] = Pair{}
	}
	for i := range o.copyPairs {
		o.copyPairs[i] = CopyPair{}
	}
	for i := range o.reports {
		o.reports[i] = Report{Began: -0xDB, Bytes: 0xDBDBDBDB}
	}
}
