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
	"github.com/kvferry/kvferry/runtime/recording"
)

// A nodeBuilder is a node that is being opened, with the parts that must be closed again if opening fails.
type nodeBuilder struct {
	ctx        context.Context
	cfg        *config.Config
	options    options
	logHandler *asynclog.Handler
	servers    []control.Server
	// key is the key of this incarnation. The values that the machine draws follow from the key too.
	key identity.Key

	mailbox  *mailbox
	driver   *rankDriver
	verifier *plane.Verifier     // nil: nothing is compared with checksums
	recorder *recording.Recorder // nil: nothing is recorded
}

// buildNode opens the control sockets, the pools and the planes, makes the machine, and starts the node's loop. After
// an error, the caller has to close the opened parts.
func (b *nodeBuilder) buildNode() (*Node, error) {
	if err := b.checkMemory(); err != nil {
		return nil, err
	}
	log := b.options.log
	b.mailbox = newMailbox(int(b.cfg.Bounds.Mailbox), receivedBytesMax(b.cfg))
	b.driver = &rankDriver{importPlanes: map[effects.Corr]plane.Plane{}, linkPlanes: map[effects.Link]plane.Plane{}, mailbox: b.mailbox,
		baseDriver: baseDriver{log: log}, verifications: verifications{tasks: taskRunner{workersMax: verifyWorkers}}}
	guard, err := b.cfg.Security.Open(log)
	if err != nil {
		return nil, openError("the security of connections", "correct the file or the key that is named", err)
	}
	b.driver.guard = guard
	if err := b.keepTenantsApart(guard, log); err != nil {
		return nil, err
	}
	// The sockets are opened first, because the machine advertises to peers the ports that were really bound. Peers
	// may send messages from here on; the mailbox holds messages until the loop starts.
	if b.driver.control, err = b.options.control(control.Env{Servers: b.servers, Sink: b.mailbox, Log: log, Poll: b.cfg.Poll,
		Guard: guard}); err != nil {
		return nil, openError("the control sockets", "free the named ports, or configure other ports", err)
	}
	machine := machineConfig(b.cfg, b.options.rank, b.localID())
	machine.Key = b.key
	seed, _ := b.key.SecretNumbers(2)
	// The addresses that a sender advertises to receivers; the system may have chosen the ports.
	bound := b.driver.control.Servers()
	machine.DoneAddr = boundAddr(bound, effects.ChannelDone)
	setSharingAddrs(&machine, bound)
	if machine.Pull && b.cfg.Role.Sends() {
		machine.RenewAddr = boundAddr(bound, effects.ChannelInit)
	}
	// Planes prove the incarnation to their peers, so planes need the identity before the machine can be made, and the
	// machine needs the planes' blobs. The machine is pure: two machines that are made of the same key have the same
	// identity, whatever planes are configured. So a draft of the machine is made first, for the identity.
	machine.Leased = b.options.device != nil || b.cfg.HasLeasedPlane()
	for _, p := range b.options.planes {
		machine.Planes = append(machine.Planes, rank.Plane{Name: p.name})
	}
	draft, err := rank.New(machine, seed, now())
	if err != nil {
		return nil, machineConfigError(err)
	}
	b.driver.log = log.With("node", shortID(draft.Incarnation()))
	b.driver.facts.lines, b.driver.facts.caller = loglimit.New(b.driver.log), b.driver.control.Caller
	b.driver.tickets = newTicketTable(draft.Limits().Commands)
	b.driver.tickets.onEnd, b.driver.reports = b.options.commandTimer, b.options.reports
	b.driver.facts.listeners = b.options.metrics
	b.driver.scatterCalls = newScatterCalls(b.mailbox)
	b.verifier = newVerifier(b.cfg.Data.Checksums, b.cfg.Data.KeepCorrupt, b.driver.log, b.driver.facts.lines)
	if err := b.openPlanes(draft, &machine); err != nil {
		return nil, err
	}
	madeAt := now()
	r, err := rank.New(machine, seed, madeAt)
	if err != nil {
		return nil, machineConfigError(err)
	}
	if r.Incarnation() != draft.Incarnation() || r.Buffer() != draft.Buffer() {
		panic("BUG: one key gave two identities")
	}
	if err := b.startRecording(r, &machine, seed, madeAt); err != nil {
		return nil, err
	}
	first := effects.Page{Pool: b.driver.memory.servedPool().ID()}
	n := &Node{role: b.cfg.Role, layout: b.cfg.Layout, pageBytes: b.cfg.PageBytes, pages: b.cfg.Pages,
		poolKey:    b.cfg.PoolKey(),
		deviceFrom: b.cfg.Pages + b.cfg.ArenaPages, devicePages: b.cfg.NPUPages,
		inProcess: b.driver.memory.hostBytes(first) != nil && b.cfg.NPUPages == 0, hasAddresses: b.driver.memory.deviceAddress(first) != 0,
		gateway: b.options.gateway, log: b.driver.log, verifier: b.verifier, tracer: b.options.tracer,
		keysPerBatch: r.Limits().PagesPerBatch, keyBytesMax: b.cfg.Limits.KeyBytes, cfg: machine,
		machine: r, tickets: b.driver.tickets, driver: b.driver, loop: newLoop(r, b.mailbox, b.driver),
		logHandler: b.logHandler, containment: b.options.containment, failed: make(chan struct{}), closeToken: make(chan struct{}, 1)}
	n.setCallTimes(b.cfg)
	if b.cfg.Layerwise.Enabled {
		n.layers, n.prefills = int(b.cfg.Machine.Layers), newPrefillTable(b.cfg)
	}
	if b.cfg.Register.Enabled {
		n.blockGeometry = machine.Geometry
	}
	if b.cfg.Share.Enabled {
		n.sharedMode, n.hasDirectories = sharingMode(&b.cfg.Share), len(b.cfg.Share.Feeds) > 0
	}
	n.limitsTenants = machine.TenantSharePct > 0 && machine.TenantSharePct < 100
	if n.engineShare = n.pages; n.role == config.Both {
		n.engineShare = max(1, uint32(uint64(n.pages)*uint64(machine.EngineSharePct)/100))
	}
	if w := b.options.watcher; w != nil {
		w.driver, n.loop.driver = n.loop.driver, w
	}
	if n.containment != nil {
		n.loop.contain, n.loop.trace = n.containFailure, postmortem.NewTrace(n.containment.TraceEvents)
	}
	n.loop.onSetback, n.loop.recorder = n.logClockSetback, b.recorder
	go n.loop.run()
	if after := b.cfg.Recorder.StuckAfter; b.recorder != nil && after > 0 {
		go n.watchOperations(after)
	}
	return n, nil
}

// openPlanes opens the pools and then the planes, and adds the planes' blobs to the machine's configuration.
func (b *nodeBuilder) openPlanes(draft *rank.Rank, machine *rank.Config) error {
	env := plane.Env{Sink: b.mailbox, IDs: new(plane.IDs), Incarnation: draft.Incarnation(), Key: b.key, Log: b.driver.log,
		Guard: b.driver.guard}
	if err := b.openMemory(draft, &env); err != nil {
		return err
	}
	if b.driver.verifications.verifier = b.verifier; env.Leased != nil && b.verifier != nil {
		env.Leased.SetVerifier(b.verifier, b.driver.memory.hostBytes)
	}
	env.Bounds.Links, env.Bounds.PagesPerBatch = int(b.cfg.Machine.PeersMax), draft.Limits().PagesPerBatch
	env.Bounds.Strangers = int(b.cfg.Bounds.PendingHandshakes)
	// Each command has at most one transfer that is not a read.
	env.Bounds.Transfers = max(1024, int(b.cfg.Bounds.Commands))
	if b.cfg.Layerwise.Enabled && b.cfg.Role.Sends() {
		env.Bounds.Transfers += int(b.cfg.Machine.Carried())
	}
	if b.cfg.Role == config.Both {
		// A node with both roles has as many reads besides as a receiver has.
		env.Bounds.Transfers *= 2
	}
	if b.cfg.Register.Enabled {
		env.Bounds.Transfers = max(env.Bounds.Transfers, int(b.cfg.Machine.RegistrationsMax))
	}
	for i, p := range b.options.planes {
		opened, err := p.open(b.ctx, env)
		if err != nil {
			return openError("plane "+p.name, "fix the cause, or set another transfer_channel", err)
		}
		b.driver.planes = append(b.driver.planes, opened)
		if opened.Name() != p.name {
			return argumentError("open", "WithPlane", strconv.Quote(p.name), strconv.Quote(opened.Name()),
				"pass the name that the plane reports")
		}
		machine.Planes[i].Blob = opened.Blob()
		if r, ok := opened.(residualPlane); ok {
			machine.Residual = max(machine.Residual, toNanos(r.ResidualTime()))
		}
	}
	return nil
}

// residualPlane is implemented by a leased plane that knows how long after a grant's deadline a store may still land.
type residualPlane interface{ ResidualTime() time.Duration }

// openMemory makes the node's pools, in the memory of a device if one is configured.
func (b *nodeBuilder) openMemory(draft *rank.Rank, env *plane.Env) error {
	if b.options.device != nil {
		return b.openDevice(draft, env)
	}
	c := plane.PoolConfig{Pages: b.cfg.Pages + b.cfg.ArenaPages, PageBytes: b.cfg.PageBytes, Buffer: draft.Buffer(),
		Sink: b.mailbox, Overcommit: b.cfg.Data.Overcommit, Lock: b.cfg.Pool.Lock,
		Huge:       b.cfg.Pool.HugePages,
		Attachable: b.options.attachable, Verifier: b.verifier}
	m := &processMemory{}
	b.driver.memory = m
	pool, err := b.newPool(c, env)
	if err != nil {
		key := b.cfg.PoolKey()
		if b.cfg.ArenaPages > b.cfg.Pages {
			key = "os_staging_bytes"
		}
		return poolError(key, c.Pages, c.PageBytes, err)
	}
	m.pool = pool
	if b.cfg.ArenaPages > 0 {
		m.copies = newCopier(poolSource{pool}, pool.Bytes, int(b.cfg.Share.ArenaThreads), b.mailbox, b.driver.log)
	}
	return nil
}

// newPool makes the pool that the planes serve: leased or fenced, according to the configured planes.
func (b *nodeBuilder) newPool(c plane.PoolConfig, env *plane.Env) (processPool, error) {
	if b.cfg.HasLeasedPlane() {
		m, err := newLeasedMemory(b.ctx, c, b.cfg.Channel == config.ChannelNIXL && !b.cfg.NIXL.InProcess)
		env.Leased = m.LeasedPool
		return m, err
	}
	pool, err := plane.NewPoolWithin(b.ctx, c)
	env.Pool = pool
	return pool, err
}

// checkMemory checks that there is memory for the pools before anything is made with a size that depends on the
// pools. The machine has tables of all pages, and the tables for a pool size with a few digits too many would exhaust
// the host's memory.
func (b *nodeBuilder) checkMemory() error {
	switch all := uint64(b.cfg.Pages+b.cfg.ArenaPages) * b.cfg.PageBytes; {
	case b.options.device != nil:
	case b.cfg.Pool.HugePages:
		if err := backing.CheckHugePages(all); err != nil {
			return hugePagesError(err)
		}
	case !b.cfg.Data.Overcommit:
		if err := backing.CheckAvailable(uint64(b.cfg.Pages) * b.cfg.PageBytes); err != nil {
			return poolError(b.cfg.PoolKey(), b.cfg.Pages, b.cfg.PageBytes, err)
		}
		if err := backing.CheckAvailable(all); err != nil {
			return poolError("os_staging_bytes", b.cfg.ArenaPages, b.cfg.PageBytes, err)
		}
	}
	if b.cfg.Pool.Lock && b.options.device == nil {
		if err := backing.CheckLockLimit(uint64(b.cfg.Pages+b.cfg.ArenaPages) * b.cfg.PageBytes); err != nil {
			return lockError(err)
		}
	}
	// The tables are needed wherever the pages are, and whether or not the pages are allocated at once.
	pages := uint64(b.cfg.Pages) + uint64(b.cfg.ArenaPages) + uint64(b.cfg.NPUPages)
	if err := backing.CheckAvailable(tableBytes * pages); err != nil {
		return tablesError(b.cfg, err)
	}
	return nil
}

// tableBytes is a lower bound of the memory that the tables need per page: twice the machine's tables, because a
// draft of the machine is made, and the fences.
const tableBytes = 224

// tablesError returns the error of a pool with tables that do not fit into memory.
func tablesError(cfg *config.Config, err error) error {
	key, pages := cfg.PoolKey(), cfg.Pages
	if cfg.ArenaPages > pages {
		key, pages = "os_staging_bytes", cfg.ArenaPages
	}
	if cfg.NPUPages > pages {
		key, pages = "p2p_npu_buffer_size", cfg.NPUPages
	}
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err, Remedy: fmt.Sprintf(
		"the tables for %d pages of %d bytes do not fit into memory; make %s smaller or chunk_size larger",
		pages, cfg.PageBytes, key)}
}

// lockError returns the error of a pool that cannot be locked in memory.
func lockError(err error) error {
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
		Remedy: "allow the process to lock that much memory (ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit " +
			"memlock=-1, or CAP_IPC_LOCK), make the pool smaller, or remove pool.lock"}
}

// hugePagesError returns the error of a pool for which there are not enough huge pages.
func hugePagesError(err error) error {
	more := "use a kernel with huge pages"
	if s := (*backing.HugeShortage)(nil); errors.As(err, &s) && s.PageBytes > 0 {
		more = fmt.Sprintf("reserve more huge pages (sysctl vm.nr_hugepages=%d; in a container also raise the hugetlb limit)",
			s.Total-min(s.Total, s.Free)+s.RequestedPages())
	}
	return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
		Remedy: more + ", make the pool smaller, or remove pool.huge_pages"}
}

// poolError returns the error of a pool that cannot be made in the size that the configuration key sets.
func poolError(key string, pages uint32, pageBytes uint64, err error) error {
	if unlocked := (*backing.LockShortage)(nil); errors.As(err, &unlocked) {
		return lockError(err)
	}
	if short := (*backing.HugeShortage)(nil); errors.As(err, &short) {
		return hugePagesError(err)
	}
	if short := (*backing.Shortage)(nil); errors.As(err, &short) {
		return &Error{Op: "open", Code: effects.NoMemory, Cause: err,
			Remedy: fmt.Sprintf("%d pages of %d bytes do not fit; make %s smaller, or give this process more memory",
				pages, pageBytes, key)}
	}
	return openError(fmt.Sprintf("a pool of %d pages of %d bytes", pages, pageBytes), "set "+key+" to another size", err)
}

// openDevice opens the device and makes the pools in the memory of the device.
func (b *nodeBuilder) openDevice(draft *rank.Rank, env *plane.Env) error {
	c := device.Env{
		Engine: device.Pool{
			Host: b.cfg.PoolDevice().Kind != config.DeviceNPU, Attachable: b.options.attachable,
			Pages: b.cfg.Pages + b.cfg.ArenaPages, PageBytes: b.cfg.PageBytes,
		},
		Arena:  b.cfg.ArenaPages,
		Buffer: draft.Buffer(), Sink: b.mailbox, Log: b.driver.log,
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
		return openError("the device", "run kvferry doctor to see what is missing", err)
	}
	b.driver.memory, env.Leased = deviceMemory{d}, d.LeasedPool()
	return nil
}

// poolKeys returns the configuration keys that set the sizes of a device's pools.
func (b *nodeBuilder) poolKeys() string {
	switch {
	case b.cfg.NPUPages > 0:
		return "pd_buffer_size (or max_local_cpu_size) or p2p_npu_buffer_size"
	default:
		return b.cfg.PoolKey()
	}
}

// closeParts closes what a failed build had opened. The context of Open is not used: the end of that context may be the
// reason for the failure, and there is no node that could be closed again.
func (b *nodeBuilder) closeParts() error {
	if b.driver == nil {
		return nil
	}
	bg := context.Background()
	b.mailbox.close()
	var errs []error
	if b.driver.control != nil {
		errs = append(errs, b.driver.control.Shutdown(bg))
	}
	var moving error
	for _, p := range b.driver.planes {
		moving = errors.Join(moving, p.Close(bg))
	}
	if b.driver.memory != nil && moving == nil { // Otherwise a plane may still access the pool.
		errs = append(errs, b.driver.memory.close(bg))
	}
	b.driver.guard.Close()
	if b.recorder != nil {
		b.recorder.Close(recordingTimeout)
	}
	return errors.Join(append(errs, moving)...)
}

// localID returns the name that the node uses for itself in handshakes. LMCache joins the host and the handshake
// port, but a sender may have no handshake port. In pull mode, receivers look a sender up by the address at which it
// takes done messages.
func (b *nodeBuilder) localID() string {
	if done := boundAddr(b.driver.control.Servers(), effects.ChannelDone); done.Port != 0 {
		return protocol.Endpoint(done).String()
	}
	if e, ok := b.cfg.InitEndpoint(b.options.rank); ok && e.Host != "" {
		return e.String()
	}
	incarnation := b.key.PublicID()
	return fmt.Sprintf("sender-%x", incarnation[:4])
}

// receivedBytesMax returns the mailbox's limit of bytes: enough for a mailbox full of ordinary messages, and for one
// message of the maximum length in any case.
func receivedBytesMax(cfg *config.Config) int {
	const ordinaryBytes = 4 << 10
	return max(int(cfg.Bounds.Mailbox)*ordinaryBytes, cfg.Limits.MessageBytes)
}

var (
	_ plane.Sink   = (*mailbox)(nil)
	_ control.Sink = (*mailbox)(nil)
)
