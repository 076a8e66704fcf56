package rank

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/identity"
)

// Role is the set of sides that a rank has. Role decides which commands and messages the rank accepts; all others are
// refused.
type Role uint8

// The roles: a role for each side, and a role for both sides at once.
const (
	RoleSender   Role = 1 << iota // a prefill node: it puts chunks
	RoleReceiver                  // a decode node: it accepts puts, and serves Gets
	RoleBoth     = RoleSender | RoleReceiver
)

// Sends reports whether a rank with this role puts chunks.
func (r Role) Sends() bool { return r&RoleSender != 0 }

// Receives reports whether a rank with this role accepts puts.
func (r Role) Receives() bool { return r&RoleReceiver != 0 }

func (r Role) String() string {
	switch r {
	case RoleSender:
		return "sender"
	case RoleReceiver:
		return "receiver"
	case RoleBoth:
		return "both"
	}
	return "Role(" + strconv.Itoa(int(r)) + ")"
}

// countDirections returns the number of directions in which the rank has peers: peers that the rank calls, and peers
// that call the rank.
func (r Role) countDirections() uint32 {
	if r == RoleBoth {
		return 2
	}
	return 1
}

// Plane is a data plane of this rank, as opened by the driver.
type Plane struct {
	Name string
	// Blob is what every peer needs to import our pool over this plane. The rank does not interpret the Blob. Each peer
	// receives the Blob with a token appended that is specific to the peer.
	Blob []byte
}

// The parts of a configuration. Each part belongs to the room or flow that uses it; its type documents the allowed
// values, the defaults that stand for zero, and the resources that it needs.
type (
	Common      = flow.Settings
	Memory      = memory.Settings
	Store       = store.Settings
	Peers       = link.Settings
	Engine      = engine.Settings
	Pending     = allocqueue.Settings
	Deferred    = deferred.Settings
	Pipeline    = staging.Settings
	Granting    = push.GrantSettings
	Offering    = pull.OfferSettings
	Reading     = pull.ReadSettings
	Recalling   = recall.Settings
	Sharing     = p2p.Settings
	Finding     = registrar.Settings
	Bundling    = bundle.Settings
	Layerwise   = layerwise.Settings
	Registering = register.Settings
)

// ReserveNone, given as ReservePPM, means that no pages are reserved.
const ReserveNone = pull.ReserveNone

// Config is the whole configuration of a rank. Durations and counts that are zero take the default that is named beside
// them. [New] returns an error for a configuration that cannot work.
type Config struct {
	Role Role
	// Key is the secret of this incarnation of the rank: 32 random bytes, which only the rank and its planes have. A
	// zero Key is derived from the seed, which only simulators and tests may do.
	Key identity.Key
	// Planes are in order of preference. A peer that has none of them is refused.
	Planes []Plane

	Common
	Memory
	Store
	Peers
	Engine
	Pending
	Deferred
	Pipeline
	Granting
	Offering
	Reading
	Recalling
	Sharing
	Finding
	Bundling
	Layerwise
	Registering
	Tuning Tuning
}

// isPullSender reports whether this rank leases its pages to readers (pull) instead of pushing them.
func (c *Config) isPullSender() bool { return c.Pull && c.Role.Sends() }

// recallsChunks reports whether the rank recalls chunks from peers; servesRecalls reports whether peers recall chunks
// from the rank.
func (c *Config) recallsChunks() bool { return c.Recalls && c.Role.Sends() }
func (c *Config) servesRecalls() bool { return c.Recalls && c.Role.Receives() }

// recallPeersMax returns the maximum number of peers from which the rank recalls at a time.
func (c *Config) recallPeersMax() uint32 {
	if !c.recallsChunks() {
		return 0
	}
	return c.PeersMax
}

// pushesLayers reports whether the rank pushes layer by layer.
func (c *Config) pushesLayers() bool { return c.Layers > 0 && c.Role.Sends() }

// bundlesMax returns the maximum number of chunks that this rank receives layer by layer at a time.
func (c *Config) bundlesMax() uint32 {
	if c.Layers == 0 || !c.Role.Receives() {
		return 0
	}
	return c.BundlesMax
}

// carriedPutsMax returns the maximum number of puts that the layerwise flow may have in progress at a time.
func (c *Config) carriedPutsMax() uint32 {
	if !c.pushesLayers() {
		return 0
	}
	return c.Carried()
}

// reportsRequestEnds reports whether the rank notifies receivers how requests ended.
func (c *Config) reportsRequestEnds() bool { return c.Role.Sends() && !c.registersBlocks() }

// outcomesMax returns for how many requests of peers the rank records their outcome.
func (c *Config) outcomesMax() int {
	if !c.Role.Receives() || c.registersBlocks() {
		return 0
	}
	return int(c.RequestsMax)
}

// connsMax returns the maximum number of connections that the rank has open: connections to the peers that the rank
// calls, and two or three to each peer that calls the rank, for done messages and for lease renewals.
func (c *Config) connsMax() int {
	n := link.ConnsMax(c.PeersMax) + int(c.recallPeersMax())
	if c.UsesDirectories() {
		n += c.Conns()
	}
	if c.reportsRequestEnds() {
		n += int(c.PeersMax)
	}
	if c.Role.Receives() {
		n += notice.AddressesMax(int(c.PeersMax)) + int(c.PeersMax*c.Role.countDirections()+1+c.Tuning.PlainsMax)
	}
	return n
}

// highWater returns the maximum number of pages that are leased at a time.
func (c *Config) highWater() uint32 { return c.HighWater(c.Pages) }

// entriesMax returns the maximum number of keys that the store knows.
func (c *Config) entriesMax() uint32 {
	return c.Entries(c.chunkPages(), c.BatchMax, c.Delay || c.Keeps)
}

// totalNeed returns the resources that all parts together may have outstanding at a time.
func (c *Config) totalNeed() kernel.Need {
	n := c.Engine.Need().Add(c.Memory.Need(c.Verifies)).Add(c.Pipeline.Need())
	// A rank with one role has a sender's pushes or a receiver's reads, and gets the larger of the two numbers in
	// either case.
	if c.Role != RoleBoth {
		n.Transfers = max(c.Engine.Need().Transfers, c.Memory.Need(c.Verifies).Transfers+c.Pipeline.Need().Transfers)
	}
	n = n.Add(c.Common.Need()).Add(c.Peers.Need(c.Tuning.LeftoversMax)).Add(c.Pending.Need()).Add(c.Deferred.Need()).
		Add(kernel.Need{Deadlines: int(c.entriesMax())})
	n = n.Add(c.flowNeed())
	if c.Shares {
		n = n.Add(c.Engine.Sharing())
	}
	if c.Layers > 0 && c.Role.Receives() {
		n = n.Add(c.Bundling.Need())
	}
	if c.UsesDirectories() {
		n = n.Add(c.Finding.Need()).Add(c.Seeking())
	}
	return n
}

// tableMax bounds each sum that totalNeed returns.
const tableMax = 1<<31 - 1

func (c *Config) fillDefaults() error {
	switch c.Role {
	case RoleSender, RoleReceiver, RoleBoth:
	default:
		return fmt.Errorf("rank: Role is %d: use RoleSender, RoleReceiver or RoleBoth", c.Role)
	}
	if err := c.Layout.Validate(); err != nil {
		return fmt.Errorf("rank: Layout: %w", err)
	}
	if len(c.Planes) == 0 {
		return fmt.Errorf("rank: Planes is empty: open at least one data plane")
	}
	c.Offering.Fill()
	c.Common.Fill(c.PullTTL)
	c.Registering.Fill()
	unset := c.GrantsMax == 0
	if c.Memory.Fill(); unset {
		c.GrantsMax = min(max(c.GrantsMax, c.Grants()), memory.GrantsMax)
	}
	c.Store.Fill(c.chunkPages(), c.BatchMax)
	c.Peers.Fill(c.BackoffMax)
	c.Engine.Fill()
	c.Pending.Fill()
	c.Deferred.Fill()
	if c.stagesOnDevice() {
		kernel.SetDefault(&c.StagingPages, c.DevicePages)
	}
	c.Pipeline.Fill(c.Pages)
	c.Granting.Fill()
	c.Reading.Fill()
	c.Recalling.Fill()
	c.Sharing.Fill()
	c.Finding.Fill()
	c.Bundling.Fill(c.Lease, c.Pages)
	c.Layerwise.Fill()
	if err := c.Tuning.fill(); err != nil {
		return err
	}
	return c.checkParts()
}

// checkParts returns an error that describes what cannot work, in a part or in the combination of parts.
func (c *Config) checkParts() error {
	if err := cmp.Or(c.Memory.Check(), c.Store.Check(), c.Common.Check(), c.Granting.Check(c.Bearer), c.Peers.Check(),
		c.Engine.Check(), c.Pending.Check(), c.Deferred.Check(), c.Pipeline.Check(c.stagingPoolPages()), c.Recalling.Check(),
		c.Offering.Check(), c.Sharing.Check(), c.Finding.Check(c.Shares),
		c.Bundling.Check(), c.Layerwise.Check(c.Layers, c.BatchMax),
		c.Registering.Check(c.Pages, c.LeaseGuard)); err != nil {
		return err
	}
	if n := c.totalNeed(); n.Deadlines > tableMax || n.MaxOutstanding() > tableMax || n.Commands > tableMax {
		return fmt.Errorf("rank: the bounds of this configuration come to %d deadlines, %d outstanding effects and %d "+
			"commands: give smaller ones, so that none is more than %d", n.Deadlines, n.MaxOutstanding(), n.Commands, tableMax)
	}
	switch {
	case c.ArenaPages > tableMax-c.Pages:
		return fmt.Errorf("rank: ArenaPages is %d beside %d Pages: give fewer, so that both are no more than %d",
			c.ArenaPages, c.Pages, tableMax)
	case c.DevicePages > tableMax-c.Pages-c.ArenaPages:
		return fmt.Errorf("rank: DevicePages is %d beside %d Pages and %d ArenaPages: give fewer, so that all are no more "+
			"than %d", c.DevicePages, c.Pages, c.ArenaPages, tableMax)
	case c.ArenaPages > 0 && c.landsOnDevice():
		return fmt.Errorf("rank: ArenaPages is %d with DevicePages of %d, into which what is brought lands: the arena's copies "+
			"are made of Pages alone; set Keeps, or give 0 for one of them", c.ArenaPages, c.DevicePages)
	case c.Layers > 0 && (c.isPullSender() || c.Delay || c.Recalls || c.Shares):
		return fmt.Errorf("rank: Layers is %d: a chunk has as many pages, which are pushed, and neither offered, recalled "+
			"nor shared; leave out Pull, Delay, Recalls and Shares, or give 0", c.Layers)
	case c.registersBlocks() && (c.Role != RoleBoth || c.isPullSender() || c.Delay || c.Recalls || c.Shares || c.Layers > 0 ||
		c.Bearer):
		return fmt.Errorf("rank: Geometry is set: the pool is the engine's, and the rank only registers blocks or writes " +
			"into registered ones; use RoleBoth, and leave out Pull, Delay, Recalls, Shares, Layers and Bearer")
	case c.Shares && c.Role != RoleBoth:
		return fmt.Errorf("rank: Shares with the role of a %v: who shares calls peers and is called; use RoleBoth", c.Role)
	case c.isPullSender():
		return c.CheckOffers(c.Pages, c.LeaseGuard)
	}
	return nil
}

// DefaultConfig returns a configuration with all defaults filled in, except those that depend on other fields: these
// are zero, and New fills them in. A node's configuration file that sets nothing stands for this configuration.
func DefaultConfig() (c Config) {
	c.Offering.Fill()
	c.Common.Fill(0)
	c.Memory.Fill()
	c.GrantsMax, c.OriginSharePct = 0, 0 // Their defaults depend on Geometry and PeerSharePct.
	c.Store.Fill(0, 0)
	c.Peers.Fill(0)
	c.Engine.Fill()
	c.Pending.Fill()
	c.Deferred.Fill()
	c.Pipeline.Fill(0)
	c.Granting.Fill()
	c.Reading.Fill()
	c.Recalling.Fill()
	c.Sharing.Fill()
	c.Finding = registrar.DefaultSettings()
	c.Layerwise.Fill()
	c.Registering = register.Default()
	if err := c.Tuning.fill(); err != nil {
		panic(fmt.Sprintf("BUG: the defaults of Tuning: %v", err))
	}
	return c
}

// registersBlocks reports whether the rank registers blocks of its engine with peers, or writes into blocks that a peer
// registered.
func (c *Config) registersBlocks() bool { return c.Geometry != nil }

// geometryNumbers returns the geometry in the form in which a handshake states it, or nil if the rank does not register
// blocks.
func (c *Config) geometryNumbers() []uint64 {
	if !c.registersBlocks() {
		return nil
	}
	return register.EncodeGeometry(c.Geometry)
}

// registerPeersMax returns the maximum number of peers with which blocks are registered at a time.
func (c *Config) registerPeersMax() uint32 {
	if !c.registersBlocks() {
		return 0
	}
	return c.PeersMax
}

// enginePoolConfig returns the configuration of the engine's pool. If its blocks are registered, the whole pool belongs
// to the engine.
func (c *Config) enginePoolConfig() memory.PoolConfig {
	p := memory.PoolConfig{Pages: c.Pages, ClassShare: c.Share(c.PeerSharePct), OriginShare: c.Share(c.OriginSharePct),
		TenantShare: c.Share(c.TenantSharePct), EngineShare: c.Share(c.EngineSharePct), Key: c.PoolKey}
	if c.registersBlocks() {
		p.EngineShare, p.Claimed = c.Pages, true
	}
	return p
}

// arenaConfig returns the configuration of the arena. The arena follows the engine's pool in one stretch of memory,
// because peers know both as one buffer.
func (c *Config) arenaConfig() memory.PoolConfig {
	if c.ArenaPages == 0 {
		return memory.PoolConfig{}
	}
	return memory.PoolConfig{Pages: c.ArenaPages, FirstIndex: c.Pages, Key: "os_staging_bytes"}
}

// devicePoolConfig returns the configuration of the device pool, the second pool of a rank that shares chunks. Its page
// numbers follow the numbers of the remaining pages.
func (c *Config) devicePoolConfig() memory.PoolConfig {
	return memory.PoolConfig{Pages: c.DevicePages, ClassShare: c.DevicePages, EngineShare: c.DevicePages, FirstIndex: c.deviceFirstPage(),
		TenantShare: uint32(max(1, uint64(c.DevicePages)*uint64(c.TenantSharePct)/100)),
		Key:         "p2p_npu_buffer_size"}
}

// deviceFirstPage returns the number of the device pool's first page.
func (c *Config) deviceFirstPage() uint32 { return c.Pages + c.ArenaPages }

// landsOnDevice reports whether chunks that are brought from peers land in the device pool; stagesOnDevice reports
// whether fetches read into the device pool.
func (c *Config) landsOnDevice() bool  { return c.DevicePages > 0 && !c.Keeps }
func (c *Config) stagesOnDevice() bool { return c.DevicePages > 0 && c.Keeps }

// chunkPages returns the number of pages in which chunks of the store can lie.
func (c *Config) chunkPages() uint32 {
	if c.landsOnDevice() {
		return c.Pages + c.DevicePages
	}
	return c.Pages
}

// stagingPoolPages returns the size of the pool from which StagingPages are taken, in pages.
func (c *Config) stagingPoolPages() uint32 {
	if c.stagesOnDevice() {
		return c.DevicePages
	}
	return c.Pages
}

// sharedMax returns how many of our engine's pages peers may read at a time.
func (c *Config) sharedMax() uint32 {
	if !c.Shares {
		return 0
	}
	return c.Pages
}
