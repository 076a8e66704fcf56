package protocol

// An EngineAnswer is how a call ended: agent to engine, one for each call. After a resumption it may come again.
type EngineAnswer struct {
	ID   uint64 // id: of the call
	Code uint32 // code: how it ended; 0 is well
	// Held says that memory of the call may still be touched: an EngineReturned follows, whatever Code is.
	Held bool // held
	// Where what the call brought is: numbers of pages of the pool, and the valid bytes of each. They are the engine's
	// under the number of the call until it gives them back.
	Pages, Lengths []uint64 // pages, lengths: as long as each other
	Hits           uint32   // hits: chunks of the prefix
	Sent, Skipped  uint32   // sent, skipped: chunks that a put wrote, that were there; of a lookup hits here and elsewhere
	Stats          []byte   // stats: JSON, for people and for metrics

	// What Code leaves open, as package runtime's errors have it.
	Count               uint32 // count
	Peer, Stage         []byte // peer, stage
	Field, Ours, Theirs []byte // field, ours, theirs
	Said, Remedy        []byte // said, remedy
}

// An EngineShow lends chunks of a fetch to the engine: agent to engine, one of a fetch at a time, answered by one
// EngineShown. They are only to be read, until that is sent.
type EngineShow struct {
	ID             uint64   // id: of the call
	First          uint32   // first: the place of the first among the keys of the call
	Pages, Lengths []uint64 // pages, lengths: as long as each other
}

// An EngineShown says that the engine has read what was shown, or with a code that it could not use it.
type EngineShown struct {
	ID    uint64 // id: of the call
	First uint32 // first: as it was shown
	Code  uint32 // code: 0 goes on with the fetch, another ends it
}

// An EngineReturned says that nothing touches the memory of a call any more: agent to engine.
type EngineReturned struct {
	ID uint64 // id: of the call
}

// Fields of EngineAnswer.
const (
	_ = iota // the tag
	answerID
	answerCode
	answerHeld
	answerPages
	answerLengths
	answerHits
	answerSent
	answerSkipped
	answerStats
	answerCount
	answerPeer
	answerStage
	answerField
	answerOurs
	answerTheirs
	answerSaid
	answerRemedy
)

// Fields of EngineShow.
const (
	_ = iota // the tag
	showID
	showFirst
	showPages
	showLengths
)

// Fields of EngineShown.
const (
	_ = iota // the tag
	shownID
	shownFirst
	shownCode
)

var (
	engineAnswerSchema = schema{
		name: "KvfAnswer", tagged: true,
		names: []string{
			tagField, "id", "code", "held", "pages", "lengths", "hits", "sent", "skipped", "stats", "count", "peer", "stage",
			"field", "ours", "theirs", "said", "remedy",
		},
		required: 1 << answerID,
	}
	engineShowSchema = schema{
		name: "KvfShow", tagged: true,
		names: []string{tagField, "id", "first", "pages", "lengths"}, required: 1<<showID | 1<<showPages | 1<<showLengths,
	}
	engineShownSchema = schema{
		name: "KvfShown", tagged: true,
		names: []string{tagField, "id", "first", "code"}, required: 1 << shownID,
	}
	engineReturnedSchema = schema{
		name: "KvfReturned", tagged: true,
		names: []string{tagField, "id"}, required: 1 << 1,
	}
)

// Append appends the message to b.
func (m *EngineAnswer) Append(b []byte) []byte {
	b = appendTag(b, TagEngineAnswer, 1+ones(m.Code != 0, m.Held, len(m.Pages) > 0, len(m.Lengths) > 0, m.Hits != 0,
		m.Sent != 0, m.Skipped != 0, len(m.Stats) > 0, m.Count != 0, len(m.Peer) > 0, len(m.Stage) > 0, len(m.Field) > 0,
		len(m.Ours) > 0, len(m.Theirs) > 0, len(m.Said) > 0, len(m.Remedy) > 0))
	b = appendUint(appendStr(b, "id"), m.ID)
	b = appendNonZero(b, "code", uint64(m.Code))
	b = appendTrue(b, "held", m.Held)
	b = appendNonEmpty(b, "pages", m.Pages)
	b = appendNonEmpty(b, "lengths", m.Lengths)
	b = appendNonZero(b, "hits", uint64(m.Hits))
	b = appendNonZero(b, "sent", uint64(m.Sent))
	b = appendNonZero(b, "skipped", uint64(m.Skipped))
	if len(m.Stats) > 0 {
		b = appendBin(appendStr(b, "stats"), m.Stats)
	}
	b = appendNonZero(b, "count", uint64(m.Count))
	b = appendNonEmptyText(b, "peer", m.Peer)
	b = appendNonEmptyText(b, "stage", m.Stage)
	b = appendNonEmptyText(b, "field", m.Field)
	b = appendNonEmptyText(b, "ours", m.Ours)
	b = appendNonEmptyText(b, "theirs", m.Theirs)
	b = appendNonEmptyText(b, "said", m.Said)
	return appendNonEmptyText(b, "remedy", m.Remedy)
}

// Decode fills m from b; texts are views of it. The error is a *DecodeError.
func (m *EngineAnswer) Decode(b []byte, lim *Limits) error {
	*m = EngineAnswer{Pages: m.Pages[:0], Lengths: m.Lengths[:0]}
	r := open(b, lim)
	r.expectTag(TagEngineAnswer)
	w := fields{r: &r, schema: &engineAnswerSchema, depth: 2}
	lengthsAt := 0
	for w.open(); w.next(); {
		switch w.at {
		case answerID:
			m.ID = r.uint64()
		case answerCode:
			m.Code = r.uint32()
		case answerHeld:
			m.Held = r.boolean()
		case answerPages:
			m.Pages = r.uint64s(m.Pages)
		case answerLengths:
			lengthsAt = r.off
			m.Lengths = r.uint64s(m.Lengths)
		case answerHits:
			m.Hits = r.uint32()
		case answerSent:
			m.Sent = r.uint32()
		case answerSkipped:
			m.Skipped = r.uint32()
		case answerStats:
			m.Stats = r.binUpTo(r.lim.MessageBytes, "MessageBytes") // It is looked at by people, and kept by nobody.
		case answerCount:
			m.Count = r.uint32()
		default:
			m.decodeWhy(&r, w.at)
		}
	}
	w.close()
	r.end()
	r.parallel("lengths", lengthsAt, len(m.Lengths), "pages", len(m.Pages))
	return r.result()
}

func (m *EngineAnswer) decodeWhy(r *reader, field int) {
	switch field {
	case answerPeer:
		m.Peer = r.text()
	case answerStage:
		m.Stage = r.text()
	case answerField:
		m.Field = r.text()
	case answerOurs:
		m.Ours = r.text()
	case answerTheirs:
		m.Theirs = r.text()
	case answerSaid:
		m.Said = r.text()
	case answerRemedy:
		m.Remedy = r.text()
	}
}

// Append appends the message to b.
func (m *EngineShow) Append(b []byte) []byte {
	b = appendTag(b, TagEngineShow, 3+ones(m.First != 0))
	b = appendUint(appendStr(b, "id"), m.ID)
	b = appendNonZero(b, "first", uint64(m.First))
	return appendUints(appendUints(b, "pages", m.Pages), "lengths", m.Lengths)
}

// Decode fills m from b. The error is a *DecodeError.
func (m *EngineShow) Decode(b []byte, lim *Limits) error {
	*m = EngineShow{Pages: m.Pages[:0], Lengths: m.Lengths[:0]}
	r := open(b, lim)
	r.expectTag(TagEngineShow)
	w := fields{r: &r, schema: &engineShowSchema, depth: 2}
	lengthsAt := 0
	for w.open(); w.next(); {
		switch w.at {
		case showID:
			m.ID = r.uint64()
		case showFirst:
			m.First = r.uint32()
		case showPages:
			m.Pages = r.uint64s(m.Pages)
		case showLengths:
			lengthsAt = r.off
			m.Lengths = r.uint64s(m.Lengths)
		}
	}
	w.close()
	r.end()
	r.parallel("lengths", lengthsAt, len(m.Lengths), "pages", len(m.Pages))
	return r.result()
}

// Append appends the message to b.
func (m *EngineShown) Append(b []byte) []byte {
	b = appendTag(b, TagEngineShown, 1+ones(m.First != 0, m.Code != 0))
	b = appendUint(appendStr(b, "id"), m.ID)
	b = appendNonZero(b, "first", uint64(m.First))
	return appendNonZero(b, "code", uint64(m.Code))
}

// Decode fills m from b. The error is a *DecodeError.
func (m *EngineShown) Decode(b []byte, lim *Limits) error {
	*m = EngineShown{}
	r := open(b, lim)
	r.expectTag(TagEngineShown)
	w := fields{r: &r, schema: &engineShownSchema, depth: 2}
	for w.open(); w.next(); {
		switch w.at {
		case shownID:
			m.ID = r.uint64()
		case shownFirst:
			m.First = r.uint32()
		case shownCode:
			m.Code = r.uint32()
		}
	}
	w.close()
	r.end()
	return r.result()
}

// Append appends the message to b.
func (m *EngineReturned) Append(b []byte) []byte {
	return appendUint(appendStr(appendTag(b, TagEngineReturned, 1), "id"), m.ID)
}

// Decode fills m from b. The error is a *DecodeError.
func (m *EngineReturned) Decode(b []byte, lim *Limits) error {
	*m = EngineReturned{}
	r := open(b, lim)
	r.expectTag(TagEngineReturned)
	w := fields{r: &r, schema: &engineReturnedSchema, depth: 2}
	for w.open(); w.next(); {
		m.ID = r.uint64()
	}
	w.close()
	r.end()
	return r.result()
}
