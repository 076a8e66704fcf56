package directory

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata/stories are stories of a directory and who speaks with it. A worker is its instance and
// rank, such as a/0; chunks are numbers, and 3..5 are three of them. Directives:
//
//	directory [FIELD=N] ...                            begins; bounds that are not named are wide
//	register | heartbeat | deregister W [ip=] [port=] [url=] [life=N] [by=N]
//	report W at=L [from=N | unnumbered] [life=N]       operations, numbered from N; input: +3..5 -3
//	begin-sync W at=L id=S batches=N [next=N] [life=N]
//	batch W at=L id=S n=N [life=N]                     input: chunks
//	end-sync W at=L id=S chunks=N [life=N]
//	status W id=S [life=N]
//	lookup W                                           input: chunks
//	has W at=L
//	wait N                                             so many seconds pass, with a tick at each deadline
//	... W [proves=N]                                   any of these, by a process that proved an identity
//	sweep                                              ticks until nothing is left to sweep
func TestTranscripts(t *testing.T) {
	transcript.Play(t, "testdata/stories", func() func(transcript.Directive) string { return (&stage{}).play })
}

// A stage is a directory and its clock.
type stage struct {
	Directory
	now effects.Time
}

func wide() Config {
	c := Default()
	c.Seed, c.Silence, c.Disconnected, c.SyncTimeout = 1, 30*effects.Second, 0, 10*effects.Second
	return c
}

func (s *stage) play(d transcript.Directive) string {
	number := func(key string) int64 { return int64(d.IntValue(key, 0)) }
	var who Sender
	if len(d.CmdArgs) > 0 {
		if name, rank, ok := strings.Cut(d.WordAt(0), "/"); ok {
			n, _ := strconv.Atoi(rank)
			who = Sender{Instance: []byte(name), Worker: int64(n), Incarnation: effects.Incarnation{byte(number("life"))},
				Source: uint64(number("by")), Origin: effects.Origin(d.IntValue("from", int(name[0]))),
				Principal: effects.Principal(number("proves"))}
		}
	}
	at := Address{IP: []byte("10.0.0.1"), Port: 9000, URL: fmt.Appendf(nil, "%s:%d", who.Instance, 7000+who.Worker)}
	if d.HasArg("ip") {
		at.IP = []byte(d.Value("ip"))
	}
	if d.HasArg("port") {
		at.Port = number("port")
	}
	if d.HasArg("url") {
		at.URL = []byte(strings.TrimSuffix(d.Value("url"), "none"))
	}
	location, id := []byte(d.Value("at")), []byte(d.Value("id"))
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	coded := func(code effects.Code) { say("%v", code) }
	switch d.Cmd {
	case "directory":
		c := wide()
		for _, a := range d.AllArgs() {
			n, _ := strconv.Atoi(a.Vals[0])
			if a.Key == "parted" {
				c.Disconnected = effects.Duration(n) * effects.Second
				continue
			}
			*bounds(&c)[a.Key] = n
		}
		if err := c.Check(); err != nil {
			d.T.Fatal(err)
		}
		s.Directory = New(c)
		return ""
	case "register":
		coded(s.Register(s.now, who, at))
	case "lost":
		s.ConnectionLost(s.now, uint64(number("by")))
	case "deregister":
		coded(s.Deregister(s.now, who, at))
	case "heartbeat":
		why, code := s.Heartbeat(s.now, who, at)
		if coded(code); why != NoSync {
			say("full sync: %v", why)
		}
	case "report":
		coded(s.ApplyReport(s.now, &Report{
			Sender: who, Location: location, Operations: operations(d.Input, uint64(number("from"))),
			Unnumbered: d.HasArg("unnumbered"),
		}))
	case "begin-sync":
		coded(s.BeginSync(s.now, &SyncBegin{
			Sender: who, Location: location, ID: id, Batches: number("batches"), NextSequence: uint64(number("next")),
			Numbered: d.HasArg("next"),
		}))
	case "batch":
		coded(s.AddSyncBatch(s.now, &SyncBatch{Sender: who, Location: location, ID: id, Batch: number("n"),
			Hashes: hashes(d.Input)}))
	case "end-sync":
		coded(s.EndSync(s.now, &SyncEnd{Sender: who, Location: location, ID: id, Chunks: number("chunks")}))
	case "status":
		p, code := s.SyncStatus(s.now, who, id, make([]int64, 0, 4))
		coded(code)
		say("complete %v, resume %v, %d of 10000, missing %v", p.Complete, p.Resume, p.Done, p.Missing)
	case "lookup":
		peers, code := s.Lookup(s.now, who, hashes(d.Input), nil)
		if code != effects.OK {
			coded(code)
		}
		if len(peers) == 0 {
			say("nobody")
		}
		for _, p := range peers {
			say("%s %s has %d, at %s", p.Instance, p.Location, p.Chunks, p.URL)
		}
	case "has":
		n, _, ok := s.CountChunks(who, location)
		say("%d chunks, known %v", n, ok)
	case "wait":
		s.pass(s.now.Add(effects.Duration(d.FirstNumber()) * effects.Second))
	case "sweep":
		steps := 0
		for s.chunks.HasRetired() {
			s.Advance(s.now)
			steps++
		}
		f := s.Figures()
		say("%d rows, %d chunks, %d holders", f.Rows, f.Chunks, f.Holders)
	default:
		d.FailUnknown()
	}
	for _, n := range s.PendingNotes() {
		say("- %s", describeNote(n))
	}
	s.ClearNotes()
	return out.String()
}

// pass lets time pass, with a step at each deadline.
func (s *stage) pass(until effects.Time) {
	for at, ok := s.Deadline(); ok && at <= until && at > s.now; at, ok = s.Deadline() {
		s.now = at
		s.Advance(s.now)
	}
	s.now = until
	s.Advance(s.now)
}

// bounds are the fields that a story may set.
func bounds(c *Config) map[string]*int {
	return map[string]*int{
		"instances": &c.Instances, "workers": &c.Workers, "of-one": &c.WorkersPerInstance, "of-source": &c.WorkersPerConnection,
		"locations": &c.LocationsPerWorker, "holders": &c.Holders,
		"chunks": &c.Chunks, "of-chunk": &c.HoldersPerChunk, "text": &c.TextBytes, "syncs": &c.Syncs, "batches": &c.BatchesPerSync,
		"hashes": &c.HashesPerBatch,
		"prefix": &c.HashesPerLookup, "peers": &c.PeersPerLookup, "sweep": &c.SweepRows,
	}
}

// hashes reads chunks: 3 7..9.
func hashes(text string) (all []uint64) {
	for _, word := range strings.Fields(text) {
		from, to, several := strings.Cut(word, "..")
		a, _ := strconv.ParseUint(from, 10, 64)
		b := a
		if several {
			b, _ = strconv.ParseUint(to, 10, 64)
		}
		for ; a <= b; a++ {
			all = append(all, a)
		}
	}
	return all
}

// operations reads what happened: +3..5 -4.
func operations(text string, sequence uint64) (all []Operation) {
	for _, word := range strings.Fields(text) {
		for _, hash := range hashes(word[1:]) {
			all = append(all, Operation{Evict: word[0] == '-', Hash: hash, Sequence: sequence})
			sequence++
		}
	}
	return all
}

func describeNote(n Note) string {
	what := map[NoteKind]string{
		WorkerJoined: "registered", WorkerRenewed: "registered anew: what it had is forgotten", WorkerMet: "was met by its heartbeat",
		WorkerLeft:   "left",
		WorkerSilent: "went silent", OperationsLost: "lost its order", SyncBegan: "begins a sync", SyncCompleted: "is synced",
		SyncGivenUp: "has its sync given up", ChunksLeftOut: "has chunks that are left out",
		WorkerDisconnected: "had no connection for too long", WorkerDisplaced: "gave way to another one",
	}[n.Kind]
	name := fmt.Sprintf("%s/%d", n.Instance, n.Worker)
	if n.Location != "" {
		name += " " + n.Location
	}
	return name + " " + what
}
