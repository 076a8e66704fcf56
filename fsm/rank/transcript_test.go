package rank

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/tools/transcript"
)

// The transcripts in testdata are the documentation of the exchanges: each tells
// one story between ranks. Directives:
//
//	rank NAME role=sender|receiver [pages=8] [leased] [proxy] [pull [renew] [ttl_ms=360000]] [attempts=3]
//	     [delay [staging=2]] [cache] [recalls] [shares [arena=4] [gets=4]]
//	     [layers=2 [merge=BYTES] [saves=N] [runs=N] [bundles=N] [whole_chunks]]
//	     [holds=2]                     starts (or restarts) a rank; holds: its pages have so many layers each
//	     [cells=(RANKS, RANK, HEADS, BLOCKS) [layers_of=(STAGES, STAGE, FIRST, COUNT)] [groups=(0, 1)]]
//	                                   registers blocks: 4 tokens each, a head to a page; of 0 heads each rank has all;
//	                                   groups: of each layer; [receptions=N] [producers=N] [registrations=N]
//	                                   [grants=N] [engine=ID]
//	register NAME from=(a, b) [request=r1-00000001] [transfer=t] [ranks=1] [stages=1] [blocks=(0, 1)] [first=0]
//	     [wait_ms=N] [blocks1=(0, 1)] [first1=0]   blocks1: of group 1; alone, none of group 0
//	finished NAME [request=r1-00000002] [transfer=t] [blocks=(0, 1)] [first=0] [blocks1=(0, 1)] [first1=0] [lease_ms=N]
//	aborted NAME
//	expect NAME from=(a); notneeded NAME from=(a)
//	quiet / loud                       stops and starts printing
//	reserve|put|get|... NAME [args]    gives the engine's command; its ticket is the next number
//	recall NAME from=NAME keys=(a b) [at=0]  reads back, into the pages of NAME from the one at this place on
//	store NAME of=TICKET keys=(a b) [at=0]   hands pages of that Reserve over, from the one at this place on
//	share NAME of=TICKET keys=(a b) [at=0]   lets peers read pages of that Reserve; withdraw NAME of=TICKET ends it
//	begin NAME [to=NAME|nobody] [request=r1] [skip=0] [chunks=4 compute_us=9 link=BYTES batch_us=9]
//	save NAME layer=0 tokens=8 first=0 keys=(a b) at=PAGE  a layer of chunks is in pages of NAME from that one on
//	finish NAME tokens=9 [keys=c at=PAGE]                     also: preempt NAME, drop NAME;
//	     of=TICKET in each but begin: of that Begin, and of no other
//	run                                delivers everything under way, in order
//	step [N]                           delivers N items, one if not said
//	pending                            lists what is under way
//	lose WHAT                          loses the first item whose name starts so
//	lost NAME peer=NAME                the data plane tells NAME that the peer died
//	advance MS                         moves the clock
//	stats NAME                         prints what is in the tables
//	peers NAME, operations NAME, holds NAME  prints what operators see of these
//
// and, where things go wrong:
//
//	facts                              prints links up and down and malformed bytes from now on
//	fail WHAT code=CODE                lets the completion under way say that its effect failed
//	unsettled WHAT code=CODE           likewise, but it may go on: a Settled follows
//	spoil WHAT how=HOW                 changes the bytes of the message under way
//	alter WHAT [proto=9] [inc=none] [page=2] [dtype=2] [format=2] [planes=x] [blobs=none] [plain=1]
//	     [cache=(AT, N)]               a number of its cache
//	                                   changes what a hello under way says
//	overhear WHAT                      keeps a message under way; repeat NAME [how a hello is altered] sends it to NAME,
//	                                   from another connection
//	late WHAT                          the answer under way is in the mailbox: Close does not undo it
//	behind WHAT                        what is under way comes after all else that is
//	ends TransferDone                  what the data plane carries out ends now, and not as soon as it begins
//	cut NAME channel=CHANNEL           loses a connection that NAME opened
//	say NAME [channel=CHANNEL] [inc=WHO] [to=WHO] [keys=(a)] [commit=(1)] [abort=(1)] [how=HOW]
//	                                   a message of somebody on a connection of his own; grants by their order
//	lookup NAME [by=WHO] [say=get|done|port|...] [keys=(a)] [op=1] [grant=1] [id=ID] [channel=lookup|peerdone] [plain=1]
//	        [patience_ms=1]            a message about shared chunks
//	landed NAME peer=WHO grant=1 pages=(0) [forged=1]
//	                                   the data plane says that pages came
func TestTranscripts(t *testing.T) {
	told, met := 0, map[effects.Mark]bool{}
	transcript.Play(t, "testdata", func() func(transcript.Directive) string {
		told++
		r := &rig{now: effects.Time(effects.Second), met: met}
		ticket := uint64(0)
		return func(d transcript.Directive) string {
			t, arg := d.T, d.Values
			r.t = t
			r.log.Reset()
			first := ""
			if len(d.CmdArgs) > 0 {
				first = d.WordAt(0)
			}
			switch d.Cmd {
			case "rank":
				cfg := Config{
					Common: Common{Leased: d.HasArg("leased"), Bearer: d.HasArg("bearer")},
					Memory: Memory{Pages: 8},
				}
				if d.HasArg("pages") {
					d.ScanArgs(t, "pages", &cfg.Pages)
				}
				cfg.Role = RoleReceiver
				switch arg("role")[0] {
				case "sender":
					cfg.Role = RoleSender
				case "both":
					cfg.Role = RoleBoth
				}
				if d.HasArg("proxy") {
					cfg.Proxy = effects.Addr{Host: "proxy", Port: 9}
				}
				if d.HasArg("pull") {
					cfg.Pull, cfg.DoneAddr = true, effects.Addr{Host: first, Port: 3}
				}
				if d.HasArg("renew") {
					cfg.RenewAddr = effects.Addr{Host: first, Port: 1}
				}
				if d.HasArg("ttl_ms") {
					var ms int
					d.ScanArgs(t, "ttl_ms", &ms)
					cfg.PullTTL = effects.Duration(ms) * effects.Millisecond
				}
				if d.HasArg("attempts") {
					d.ScanArgs(t, "attempts", &cfg.Tuning.AttemptsMax)
				}
				if cfg.Recalls = d.HasArg("recalls"); d.HasArg("cache") {
					cfg.Retention = store.Cache
				}
				if cfg.Shares = d.HasArg("shares"); cfg.Shares {
					cfg.Keeps = d.HasArg("keeps")
					cfg.LookupAddr, cfg.PeerDoneAddr = effects.Addr{Host: first, Port: 5}, effects.Addr{Host: first, Port: 6}
				}
				if d.HasArg("arena") {
					d.ScanArgs(t, "arena", &cfg.ArenaPages)
				}
				if d.HasArg("second") {
					d.ScanArgs(t, "second", &cfg.DevicePages)
				}
				if d.HasArg("gets") {
					d.ScanArgs(t, "gets", &cfg.PushesMax)
				}
				for name, at := range map[string]*uint32{
					"carries": &cfg.Carries, "layers": &cfg.Layers, "saves": &cfg.SavesMax, "bundles": &cfg.BundlesMax, "runs": &cfg.RunsMax,
				} {
					if d.HasArg(name) {
						d.ScanArgs(t, name, at)
					}
				}
				if d.HasArg("merge") {
					d.ScanArgs(t, "merge", &cfg.MergeBytes)
				}
				cfg.WholeChunks = d.HasArg("whole_chunks")
				if d.HasArg("holds") {
					cfg.Layout = layout
					d.ScanArgs(t, "holds", &cfg.Layout.Shape.Dims[1])
				}
				if d.HasArg("loans") {
					d.ScanArgs(t, "loans", &cfg.LoansMax)
				}
				cfg.Delay = d.HasArg("delay")
				cfg.AddressesOnly = d.HasArg("addresses_only")
				if d.HasArg("peers") {
					d.ScanArgs(r.t, "peers", &cfg.PeersMax)
				}
				if d.HasArg("overtakes") {
					d.ScanArgs(t, "overtakes", &cfg.BypassMax)
				}
				if d.HasArg("engine_pct") {
					d.ScanArgs(t, "engine_pct", &cfg.EngineSharePct)
				}
				if d.HasArg("staging") {
					d.ScanArgs(t, "staging", &cfg.StagingPages)
				}
				if d.HasArg("cells") {
					registerBlocks(&cfg, arg("cells"), arg("layers_of"), arg("groups"), first)
					for name, at := range map[string]*uint32{
						"receptions": &cfg.ReceptionsMax, "producers": &cfg.ProducersMax, "registrations": &cfg.RegistrationsMax, "names": &cfg.NamesMax,
						"grants": &cfg.GrantsMax,
					} {
						if d.HasArg(name) {
							d.ScanArgs(t, name, at)
						}
					}
					if d.HasArg("engine") {
						d.ScanArgs(t, "engine", &cfg.EngineID)
					}
				}
				r.add(cfg, first)
			case "quiet":
				r.quiet = true
			case "loud":
				r.quiet = false
			case "run":
				for n := 0; r.deliverNext(); n++ {
					if n > 1000 {
						t.Fatal("still busy after 1000 events")
					}
				}
			case "step":
				n := 1
				if first != "" {
					if _, err := fmt.Sscan(first, &n); err != nil {
						t.Fatal(err)
					}
				}
				for range n {
					r.deliverNext()
				}
			case "pending":
				for _, it := range r.items {
					r.printf("%s: %s", it.to.name, it.name)
				}
			case "lose":
				for i, it := range r.items {
					if len(it.name) >= len(first) && it.name[:len(first)] == first {
						r.items = append(r.items[:i:i], r.items[i+1:]...)
						r.printf("lost: %s", it.name)
						break
					}
				}
			case "lost":
				n, peer := r.node(first), r.node(arg("peer")[0])
				ev := &effects.LinkLost{Peer: r.nameFor(peer, n)}
				for _, l := range n.links {
					if l.peer == peer.name {
						ev.Link = l.id
					}
				}
				r.step(n, ev)
			case "behind":
				for i, it := range r.items {
					if strings.HasPrefix(it.name, first) {
						r.items = append(append(r.items[:i:i], r.items[i+1:]...), it)
						break
					}
				}
			case "ends":
				for i := range r.items {
					if done, ok := r.items[i].ev.(*effects.TransferDone); ok && r.items[i].name == first {
						done.At = r.now
						break
					}
				}
			case "advance":
				var ms int
				if _, err := fmt.Sscan(first, &ms); err != nil {
					t.Fatal(err)
				}
				r.advance(effects.Duration(ms) * effects.Millisecond)
			case "stats":
				s := r.node(first).rank.Stats()
				r.printf("pages free=%d of %d granted=%d quarantined=%d", s.PagesFree, s.PagesTotal, s.PagesGranted,
					s.PagesQuarantined)
				if s.Offers+s.Locations+s.Fetches+s.Staged > 0 {
					r.printf("offers=%d places=%d fetches=%d staged=%d", s.Offers, s.Locations, s.Fetches, s.Staged)
				}
				if s.ArenaTotal > 0 {
					r.printf("arena pages free=%d of %d", s.ArenaFree, s.ArenaTotal)
				}
				if s.DeviceTotal > 0 {
					r.printf("second pool pages free=%d of %d spare=%d", s.DeviceFree, s.DeviceTotal, s.DeviceEvictable)
				}
				if s.Layers+s.Bundles+s.PagesPromised > 0 {
					r.printf("layer runs=%d bundles=%d kept=%d", s.Layers, s.Bundles, s.PagesPromised)
				}
				if s.PagesLeased > 0 {
					r.printf("lent=%d", s.PagesLeased)
				}
				if s.Receptions+s.LeasedBatches+s.Registrations > 0 {
					r.printf("receptions=%d lent=%d registrations=%d", s.Receptions, s.LeasedBatches, s.Registrations)
				}
				r.printf("puts=%d reserves=%d gets=%d waiters=%d grants=%d entries=%d claims=%d outstanding=%d", s.Puts, s.Reserves,
					s.Gets, s.PendingRequests, s.Grants, s.Entries, s.Claims, s.Outstanding)
			default:
				if r.hostileDirective(d.Cmd, first, arg) || r.listingDirective(d.Cmd, first) {
					break
				}
				ticket++
				n := r.node(first)
				r.step(n, &effects.Command{Ticket: effects.Ticket(ticket), Body: r.command(n, d.Cmd, arg, ticket)})
			}
			if r.log.Len() == 0 {
				return "ok"
			}
			return r.log.String()
		}
	})
	if all, err := filepath.Glob("testdata/*.txt"); err == nil && told == len(all) {
		rareMarksAreMet(t, met)
	}
}
