package sim

import (
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/expand"
	"github.com/kvferry/kvferry/sim/explore"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The types of package plan, which describe a run, repeated here for users of the simulator.
type (
	Plan           = plan.Plan
	Topology       = plan.Topology
	Timeouts       = plan.Timeouts
	Bounds         = plan.Bounds
	Tuning         = plan.Tuning
	Delays         = plan.Delays
	Job            = plan.Job
	ScheduledFault = plan.ScheduledFault
	Node           = plan.Node
	Strike         = plan.Strike
	Subject        = plan.Subject
	Fault          = plan.Fault
	Item           = plan.Item
)

// The result of a run, from package world.
type (
	Result  = world.Result
	Failure = world.Failure
)

// The options and results of the explorer, from package explore.
type (
	ExploreOptions = explore.Options
	Exploration    = explore.Exploration
	Scope          = explore.Scope
	ScopeJob       = explore.Job
	Timers         = explore.Timers
	Path           = explore.Path
	Violation      = explore.Violation
)

// The times at which deadlines may pass in a scope: see [explore.Timers].
const (
	TimersIdle  = explore.TimersIdle
	TimersAny   = explore.TimersAny
	TimersUnits = explore.TimersUnits
)

// StatesMax is the limit of states of an exploration that sets no limit.
const StatesMax = explore.StatesMax

// ParsePath parses the output of [Path.String].
func ParsePath(text string) (Path, error) { return explore.ParsePath(text) }

// PlanVersion is the version of the plan format. FirstUnsharedKey is the lowest key number that [Expand] gives to only
// a single job.
const (
	PlanVersion      = plan.Version
	FirstUnsharedKey = plan.FirstUnsharedKey
)

// The kinds of faults; see [plan.Fault].
const (
	FaultCrash              = plan.FaultCrash
	FaultPause              = plan.FaultPause
	FaultCutConn            = plan.FaultCutConn
	FaultCutLink            = plan.FaultCutLink
	FaultNoise              = plan.FaultNoise
	FaultRequestLost        = plan.FaultRequestLost
	FaultReplyLost          = plan.FaultReplyLost
	FaultLossUnnoticed      = plan.FaultLossUnnoticed
	FaultImportFailed       = plan.FaultImportFailed
	FaultPushRefused        = plan.FaultPushRefused
	FaultDMAFailed          = plan.FaultDMAFailed
	FaultLateStore          = plan.FaultLateStore
	FaultRevokeDelayed      = plan.FaultRevokeDelayed
	FaultCommandAborted     = plan.FaultCommandAborted
	FaultReleasedTwice      = plan.FaultReleasedTwice
	FaultRequestAbandoned   = plan.FaultRequestAbandoned
	FaultEffectRefused      = plan.FaultEffectRefused
	FaultDoubleCrash        = plan.FaultDoubleCrash
	FaultFreeze             = plan.FaultFreeze
	FaultSlowNode           = plan.FaultSlowNode
	FaultDrain              = plan.FaultDrain
	FaultPartition          = plan.FaultPartition
	FaultOneWayPartition    = plan.FaultOneWayPartition
	FaultFlappingPartition  = plan.FaultFlappingPartition
	FaultConnsReset         = plan.FaultConnsReset
	FaultHostileMessage     = plan.FaultHostileMessage
	FaultHandshakeRefused   = plan.FaultHandshakeRefused
	FaultMessageDelayed     = plan.FaultMessageDelayed
	FaultPostDoubled        = plan.FaultPostDoubled
	FaultRequestCorrupted   = plan.FaultRequestCorrupted
	FaultReplyCorrupted     = plan.FaultReplyCorrupted
	FaultHalfPage           = plan.FaultHalfPage
	FaultCopyStalled        = plan.FaultCopyStalled
	FaultSettledEarly       = plan.FaultSettledEarly
	FaultConflictingCommand = plan.FaultConflictingCommand
	FaultPagesRefilled      = plan.FaultPagesRefilled
	FaultPagesKeptLong      = plan.FaultPagesKeptLong
	FaultDoneLost           = plan.FaultDoneLost
	FaultDoneForged         = plan.FaultDoneForged
	FaultFetchDelayed       = plan.FaultFetchDelayed
	FaultGreedyPeer         = plan.FaultGreedyPeer
	FaultRankAlone          = plan.FaultRankAlone
	FaultCommUnproven       = plan.FaultCommUnproven
	FaultCommStays          = plan.FaultCommStays
	FaultCommGoneEarly      = plan.FaultCommGoneEarly
	FaultForeignEncoding    = plan.FaultForeignEncoding
	FaultFieldRepeated      = plan.FaultFieldRepeated
	FaultHelloCrowd         = plan.FaultHelloCrowd
	FaultCount              = plan.FaultCount
)

// NewPlan returns the defaults from which a plan is written by hand: see [plan.New].
func NewPlan() Plan { return plan.New() }

// ParsePlan parses a plan in YAML: see [plan.Parse].
func ParsePlan(text []byte) (Plan, error) { return plan.Parse(text) }

// ReadPlan reads a plan from a file: see [plan.Read].
func ReadPlan(path string) (Plan, error) { return plan.Read(path) }

// Faults returns all kinds of faults, in the order of their numbers.
func Faults() []Fault { return plan.Faults() }

// ChannelDispatch is the channel on which a proxy of the user notifies PD's decode engines of a prefill request: see
// [world.ChannelDispatch]. EnginesNode is the node name by which [Boot.Addr] finds these engines.
const (
	ChannelDispatch = world.ChannelDispatch
	EnginesNode     = world.EnginesNode
)

// DefaultProfile is the profile that draws everything.
const DefaultProfile = expand.DefaultProfile

// Coverage counts the unusual paths that a run or a campaign took: see [coverage.Coverage].
type Coverage = coverage.Coverage

// CoveragePoints returns the names of all coverage points, including points that cannot be reached.
func CoveragePoints() []string { return coverage.PathNames() }

// Conjunction is a combination of several rare conditions: see [pd.Conjunction], which lists the names.
type Conjunction = pd.Conjunction

// Conjunctions returns all conjunctions, in the order of their numbers.
func Conjunctions() []Conjunction { return pd.AllConjunctions() }

// RequiredConjunctions returns the conjunctions that a campaign of about ten thousand seeds of the profile must meet.
func RequiredConjunctions(profile string) []Conjunction { return pd.RequiredConjunctions(profile) }
