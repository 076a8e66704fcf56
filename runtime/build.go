package runtime

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
	"github.com/kvferry/kvferry/runtime/device"
	"github.com/kvferry/kvferry/runtime/internal/asynclog"
	"github.com/kvferry/kvferry/runtime/internal/loglimit"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// A building is a node while it is being opened, and what must be taken down again if that fails.
type building struct {
	ctx     context.Context
	cfg     *config.Config
	options options
	lines   *asynclog.Handler
	servers []control.Server
	key     identity.Key // of this life; what the machine draws follows from it too

	mailbox *mailbox
	world   *world
}

func (b *building) build() (*Node, error) {
	if err := b.roomForPools(); err != nil {
		return nil, err
	}
	log := b.options.log
	b.mailbox = newMailbox(int(b.cfg.Bounds.Mailbox), receivedBytesMax(b.cfg))
	b.world = &world{imports: map[effects.Corr]plane.Plane{}, links: map[effects.Link]plane.Plane{}, mailbox: b.mailbox,
		hands: hands{log: log}}
	// The sockets come first, because the machine tells its peers the ports that were really bound. Peers may speak
	// from here on; the mailbox keeps it until the loop starts.
	var err error
	if b.world.control, err = b.options.control(control.Env{Servers: b.servers, Sink: b.mailbox, Log: log, Poll: b.cfg.Poll}); err != nil {
		return nil, openFailed("the control sockets", "free the ports that are named, or configure others", err)
	}
	machine := machineConfig(b.cfg, b.options.rank, b.localID())
	machine.Key = b.key
	seed, _ := b.key.Words(2)
	// What a sender tells receivers of itself; the ports may have been the system's to choose.
	bound := b.world.control.Servers()
	machine.DoneAddr = boundAt(bound, effects.ChannelDone)
	boundShare(&machine, bound)
	if machine.Pull && b.cfg.Role.Sends() {
		machine.RenewAddr = boundAt(bound, effects.ChannelInit)
	}
	// Planes prove the incarnation to their peers, so they need it before the machine can be made, which
	// needs their blobs. The machine is pure: one made of the same key has the same identity, whatever
	// its planes. So a draft of it is asked.
	machine.Leased = b.options.device != nil || b.cfg.Leased()
	for _, p := range b.options.planes {
		machine.Planes = append(machine.Planes, rank.Plane{Name: p.name})
	}
	draft, err := rank.New(machine, seed, now())
	if err != nil {
		return nil, refused(err)
	}
	b.world.log = log.With("node", shortID(draft.Incarnation()))
	b.world.facts.lines, b.world.facts.caller = loglimit.New(b.world.log), b.world.control.Caller
	b.world.tickets = newTicketTable(draft.Limits().Commands)
	b.world.scatters = newScatters(b.mailbox)
	if err := b.openPlanes(draft, &machine); err != nil {
		return nil, err
	}
	r, err := rank.New(machine, seed, now())
	if err != nil {
		return nil, refused(err)
	}
	if r.Incarnation() != draft.Incarnation() || r.Buffer() != draft.Buffer() {
		panic("BUG: one key gave two identities")
	}
	first := effects.Page{Pool: b.world.memory.served().ID()}
	n := &Node{role: b.cfg.Role, layout: b.cfg.Layout, pageBytes: b.cfg.PageBytes, pages: b.cfg.Pages,
		poolKey:    b.cfg.PoolKey(),
		deviceFrom: b.cfg.Pages + b.cfg.ArenaPages, devicePages: b.cfg.NPUPages,
		inProcess: b.world.memory.host(first) != nil && b.cfg.NPUPages == 0, addressed: b.world.memory.address(first) != 0,
		drainTimeout: b.cfg.DrainTimeout, log: b.world.log,
		batch: r.Limits().PagesPerBatch, keyBytes: b.cfg.Limits.KeyBytes, cfg: machine,
		machine: r, tickets: b.world.tickets, world: b.world, loop: newLoop(r, b.mailbox, b.world),
		lines: b.lines, alone: b.options.alone, failed: make(chan struct{}), beginning: make(chan struct{}, 1)}
	if b.cfg.Layerwise.Enabled {
		n.layers, n.prefills = int(b.cfg.Machine.Layers), newPrefills(b.cfg)
	}
	if b.cfg.Register.Enabled {
		n.own = machine.Geometry
	}
	if b.cfg.Share.Enabled {
		n.sharedMode, n.directories = modeOf(&b.cfg.Share), len(b.cfg.Share.Feeds) > 0
	}
	if n.share = n.pages; n.role == config.Both {
		n.share = max(1, uint32(uint64(n.pages)*uint64(machine.EngineSharePct)/100))
	}
	if w := b.options.watch; w != nil {
		w.driver, n.loop.driver = n.loop.driver, w
	}
	if n.alone != nil {
		n.loop.contain, n.loop.trace = n.fail, postmortem.NewTrace(n.alone.Events)
	}
	n.loop.turned = n.clockTurned
	go n.loop.run()
	return n, nil
}

func (b *building) openPlanes(draft *rank.Rank, machine *rank.Config) error {
	env := plane.Env{Sink: b.mailbox, IDs: new(plane.IDs), Incarnation: draft.Incarnation(), Key: b.key, Log: b.world.log}
	if err := b.openMemory(draft, &env); err != nil {
		return err
	}
	env.Bounds.Links, env.Bounds.PagesPerBatch = int(b.cfg.Machine.PeersMax), draft.Limits().PagesPerBatch
	env.Bounds.Strangers = int(b.cfg.Bounds.Strangers)
	env.Bounds.Transfers = max(1024, int(b.cfg.Bounds.Commands)) // Each command has one at the most that is not a read.
	if b.cfg.Layerwise.Enabled && b.cfg.Role.Sends() {
		env.Bounds.Transfers += int(b.cfg.Machine.Carried())
	}
	if b.cfg.Role == config.Both {
		env.Bounds.Transfers *= 2 // And as many reads as a receiver has.
	}
	if b.cfg.Register.Enabled {
		env.Bounds.Transfers = max(env.Bounds.Transfers, int(b.cfg.Machine.RegistrationsMax))
	}
	for i, p := range b.options.planes {
		opened, err := p.open(b.ctx, env)
		if err != nil {
			return openFailed("plane "+p.name, "mend what it says, or set another transfer_channel", err)
		}
		b.world.planes = append(b.world.planes, opened)
		if opened.Name() != p.name {
			return wrong("open", "WithPlane", strconv.Quote(p.name), strconv.Quote(opened.Name()), "give it by its own name")
		}
		machine.Planes[i].Blob = opened.Blob()
		if r, ok := opened.(residual); ok {
			machine.Residual = max(machine.Residual, nanos(r.Residual()))
		}
	}
	return nil
}

// residual is a leased plane that knows how long after its deadline a store may still land.
type residual interface{ Residual() time.Duration }

// openMemory makes the pools, those of a device if there is one.
func (b *building) openMemory(draft *rank.Rank, env *plane.Env) error {
	if b.options.device != nil {
		return b.openDevice(draft, env)
	}
	c := plane.PoolConfig{Pages: b.cfg.Pages + b.cfg.ArenaPages, PageBytes: b.cfg.PageBytes, Buffer: draft.Buffer(),
		Sink: b.mailbox, Overcommit: b.cfg.Data.Overcommit, Lock: b.cfg.Pool.Lock,
		Huge:       b.cfg.Pool.HugePages,
		Attachable: b.options.attachable}
	m := &processMemory{}
	b.world.memory = m
	pool, err := b.newPool(c, env)
	if err != nil {
		key := b.cfg.PoolKey()
		if b.cfg.ArenaPages > b.cfg.Pages {
			key = "os_staging_bytes"
		}
		return noPool(key, c.Pages, c.PageBytes, err)
	}
	m.pool = pool
	if b.cfg.ArenaPages > 0 {
		m.copies = newCopies(inPool{pool}, pool.Bytes, int(b.cfg.Share.ArenaThreads), b.mailbox, b.world.log)
	}
	return nil
}

// newPool makes the pool that planes serve, of the kind that they are of.
func (b *building) newPool(c plane.PoolConfig, env *plane.Env) (processPool, error) {
	if b.cfg.Leased() {
		m, err := newLeasedMemory(b.ctx, c)
		env.Leased = m.LeasedPool
		return m, err
	}
	pool, err := plane.NewPoolWithin(b.ctx, c)
	env.Pool = pool
	return pool, err
}

// roomForPools looks whether there is memory for the pools before anything is made whose size follows theirs: a machine
// has tables of
// all pages, and one of a size written with too many digits takes what a host has.
func (b *building) roomForPools() error {
	switch all := uint64(b.cfg.Pages+b.cfg.ArenaPages) * b.cfg.PageBytes; {
	case b.options.device != nil:
	case b.cfg.Pool.HugePages:
		if err := backing.CheckHuge(all); err != nil {
			return noHugePages(err)
		}
	case !b.cfg.Data.Overcommit:
		if err := backing.Check(uint64(b.cfg.Pages) * b.cfg.PageBytes); err != nil {
			return noPool(b.cfg.PoolKey(), b.cfg.Pages, b.cfg.PageBytes, err)
		}
		if err := backing.Check(all); err != nil {
			return noPool("os_staging_bytes", b.cfg.ArenaPages, b.cfg.PageBytes, err)
		}
	}
	if b.cfg.Pool.Lock && b.options.device == nil {
		if err := backing.CheckLock(uint64(b.cfg.Pages+b.cfg.ArenaPages) * b.cfg.PageBytes); err != nil {
			return noLock(err)
		}
	}
	// Wherever the pages are, and whether or not they are taken at once.
	pages := uint64(b.cfg.Pages) + uint64(b.cfg.ArenaPages) + uint64(b.cfg.NPUPages)
	if err := backing.Check(tableBytes * pages); err != nil {
		return noTables(b.cfg, err)
	}
	return nil
}

// tableBytes is what the tables of a page take at least: twice the machine's, of which a draft is made, and the fences.
const tableBytes = 168

// noTables says why pages cannot be counted.
func noTables(cfg *config.Config, err error) error {
	key, pages := cfg.PoolKey(), cfg.Pages
	if cfg.ArenaPages > pages {
		key, pages = "os_staging_bytes", cfg.ArenaPages
	}
	if cfg.NPUPages > pages {
		key, pages = "p2p_npu_buffer_size", cfg.NPUPages
	}
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err, Remedy: fmt.Sprintf(
		"the tables of %d pages of %d bytes do not fit, wherever the pages are; make %s smaller or chunk_size larger",
		pages, cfg.PageBytes, key)}
}

// noLock says why a pool cannot be locked.
func noLock(err error) error {
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
		Remedy: "let the process lock as much (ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1, or " +
			"CAP_IPC_LOCK), make the pool smaller, or leave pool.lock out"}
}

// noHugePages says why a pool cannot lie in huge pages.
func noHugePages(err error) error {
	more := "run a kernel that has them"
	if s := (*backing.HugeShortage)(nil); errors.As(err, &s) && s.PageBytes > 0 {
		more = fmt.Sprintf("have more reserved (sysctl vm.nr_hugepages=%d; in a container its hugetlb limit, too)",
			s.Total-min(s.Total, s.Free)+s.Pages())
	}
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
		Remedy: more + ", make the pool smaller, or leave pool.huge_pages out"}
}

// noPool says why there is no pool of the size that a key asks for.
func noPool(key string, pages uint32, pageBytes uint64, err error) error {
	if unlocked := (*backing.Unlocked)(nil); errors.As(err, &unlocked) {
		return noLock(err)
	}
	if short := (*backing.HugeShortage)(nil); errors.As(err, &short) {
		return noHugePages(err)
	}
	if short := (*backing.Shortage)(nil); errors.As(err, &short) {
		return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
			Remedy: fmt.Sprintf("%d pages of %d bytes do not fit; make %s smaller, or give this process more memory",
				pages, pageBytes, key)}
	}
	return openFailed(fmt.Sprintf("a pool of %d pages of %d bytes", pages, pageBytes), "give "+key+" another size", err)
}

func (b *building) openDevice(draft *rank.Rank, env *plane.Env) error {
	c := device.Env{
		Engine: device.Pool{
			Host: b.cfg.PoolDevice().Kind != config.DeviceNPU, Attachable: b.options.attachable,
			Pages: b.cfg.Pages + b.cfg.ArenaPages, PageBytes: b.cfg.PageBytes,
		},
		Arena:  b.cfg.ArenaPages,
		Buffer: draft.Buffer(), Sink: b.mailbox, Log: b.world.log,
	}
	if b.cfg.NPUPages > 0 {
		c.Second = &device.Pool{Attachable: b.options.attachable, Pages: b.cfg.NPUPages, PageBytes: b.cfg.PageBytes}
		c.SecondBuffer, _, _ = draft.Device()
	}
	d, err := b.options.device(b.ctx, c)
	if errors.Is(err, device.ErrNoMemory) {
		return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
			Remedy: fmt.Sprintf("%d pages of %d bytes do not fit; make %s smaller", b.cfg.Pages+b.cfg.NPUPages,
				b.cfg.PageBytes, b.poolKeys())}
	}
	if err != nil {
		return openFailed("the device", "see kvferry doctor for what it lacks", err)
	}
	b.world.memory, env.Leased = deviceMemory{d}, d.Leased()
	return nil
}

// poolKeys are the keys that say how large the pools of a device are.
func (b *building) poolKeys() string {
	switch {
	case b.cfg.NPUPages > 0:
		return "pd_buffer_size (or max_local_cpu_size) or p2p_npu_buffer_size"
	default:
		return b.cfg.PoolKey()
	}
}

// unwind closes what a failed build had opened. The context may be over, which may be why it failed, and there is no
// node to
// close again: so it is not asked.
func (b *building) unwind() error {
	if b.world == nil {
		return nil
	}
	bg := context.Background()
	b.mailbox.close()
	var errs []error
	if b.world.control != nil {
		errs = append(errs, b.world.control.Shutdown(bg))
	}
	var moving error
	for _, p := range b.world.planes {
		moving = errors.Join(moving, p.Close(bg))
	}
	if b.world.memory != nil && moving == nil { // Otherwise somebody is still at it.
		errs = append(errs, b.world.memory.close(bg))
	}
	return errors.Join(append(errs, moving)...)
}

// localID is what the node calls itself in handshakes: LMCache joins host and handshake port, which a
// sender may have none of. In pull mode its receivers look a sender up by where it takes their word.
func (b *building) localID() string {
	if done := boundAt(b.world.control.Servers(), effects.ChannelDone); done.Port != 0 {
		return protocol.Endpoint(done).String()
	}
	if e, ok := b.cfg.InitEndpoint(b.options.rank); ok && e.Host != "" {
		return e.String()
	}
	life := b.key.Life()
	return fmt.Sprintf("sender-%x", life[:4])
}

// receivedBytesMax lets a full mailbox of ordinary messages wait, and one of the longest in any case.
func receivedBytesMax(cfg *config.Config) int {
	const ordinaryBytes = 4 << 10
	return max(int(cfg.Bounds.Mailbox)*ordinaryBytes, cfg.Limits.MessageBytes)
}

var (
	_ plane.Sink   = (*mailbox)(nil)
	_ control.Sink = (*mailbox)(nil)
)
