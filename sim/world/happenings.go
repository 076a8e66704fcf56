package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
)

// The happenings that a world reports to the oracles of a run ([World.Panel]), each at its instant, in addition to what
// every driver reports: events, effects, and the happenings of package oracle. An oracle subscribes to a type with
// [oracle.On]. A report is made before the described action is carried out, unless the comment says otherwise. Oracles
// change nothing in a world, except that the first oracle that finds a broken promise ends the run.
type (
	// NodeStarted: a rank begins an incarnation. Buffer is the id of the rank's memory.
	NodeStarted struct {
		Node   *Node
		Buffer effects.BufferID
	}
	// SteppingMachine: Node's machine is about to receive an event.
	SteppingMachine struct {
		Node  *Node
		Kind  Kind
		Event effects.Event
	}
	// ForbiddenMessage: Node's machine is about to receive a message that must change nothing.
	ForbiddenMessage struct {
		Node  *Node
		Event *effects.Received
		Forbidden
	}
	// ForbiddenEnded: Node's machine has received that message.
	ForbiddenEnded struct {
		Node    *Node
		Event   *effects.Received
		Effects *effects.Effects
		Forbidden
	}
	// EffectEmitted: Node's machine has emitted an effect, which is not carried out yet.
	EffectEmitted struct {
		Node   *Node
		Effect effects.Effect
	}
	// NodeRestarted: Node has begun another incarnation.
	NodeRestarted struct {
		Node *Node
	}
	// NodeAtRest: nothing is in flight in Node any more. When states since when, for a sentence.
	NodeAtRest struct {
		Node *Node
		When string
	}
	// MessageReceived: Node's machine is about to receive a message.
	MessageReceived struct {
		Node     *Node
		Delivery Delivery
	}
	// ReplyReceived: Node's machine is about to receive a reply to a request on Conn.
	ReplyReceived struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// ReplyAfterClose: a reply is in the mailbox of a node that has closed its connection.
	ReplyAfterClose struct{}
	// ServerUnreachable: Node's machine is about to be notified that no server listens at the address to which it
	// connects.
	ServerUnreachable struct {
		Node *Node
		Conn *Conn
	}
	// UnreachableReported: the machine was notified of that and has completed its step.
	UnreachableReported struct {
		Node *Node
		Conn *Conn
	}
	// ConnLost: Node's machine is about to be notified that a connection is lost.
	ConnLost struct {
		Node *Node
		Conn uint64
	}
	// ImportEnded: Node's machine is about to be notified how an import ended.
	ImportEnded struct {
		Node *Node
		Corr effects.Corr
		Code effects.Code
	}
	// LinkLost: Node's machine is about to be notified that the link from Node to Peer is lost or, if OfPeer is set,
	// that the link from Peer to Node is lost.
	LinkLost struct {
		Node   *Node
		Peer   effects.Incarnation
		OfPeer bool
	}
	// TransferDone: Node's machine is about to be notified that a transfer is done. Ended is the true time of its end; the
	// machine may learn of it later.
	TransferDone struct {
		Node     *Node
		Transfer *Transfer
		Code     effects.Code
		Settled  bool
		Ended    int64
	}
	// TransferSettled: a transfer touches no page any more, and its machine is about to be notified, possibly
	// together with TransferDone.
	TransferSettled struct {
		Transfer *Transfer
	}
	// CopySettled: a copy touches no page any more, and its machine is about to be notified of that.
	CopySettled struct {
		Copy *Copy
	}
	// GrantRevoked: Node's machine is about to be notified that a grant is revoked.
	GrantRevoked struct {
		Node  *Node
		Grant effects.GrantID
	}
	// ScatterEnded: Node's machine is about to be notified how a scatter of the engine's device code ended.
	ScatterEnded struct {
		Node   *Node
		Ticket effects.Ticket
		Code   effects.Code
	}
	// LandingReported: Node's machine is about to be notified which pages a peer has written.
	LandingReported struct {
		Node     *Node
		Transfer *Transfer
		Complete bool
	}
	// OpeningConn: Node opens a connection.
	OpeningConn struct {
		Node *Node
		Conn *Conn
	}
	// SendingRequest: Node sends a request.
	SendingRequest struct {
		Node *Node
		Conn *Conn
		Corr effects.Corr
		Body []byte
	}
	// SendingReply: Node replies to the request with that number.
	SendingReply struct {
		Node    *Node
		Request uint64
		Body    []byte
	}
	// ImportingPeer: Node imports a peer's memory.
	ImportingPeer struct {
		Node   *Node
		Effect *effects.Import
	}
	// PublishingPages: the pages of a grant of Node become readable, or writable, for a peer.
	PublishingPages struct {
		Node  *Node
		Pages []effects.Page
	}
	// GrantingPages: Node grants a peer the right to write pages.
	GrantingPages struct {
		Node   *Node
		Effect *effects.Grant
	}
	// LeasingPages: Node grants a peer the right to read pages.
	LeasingPages struct {
		Node  *Node
		Grant *Grant
	}
	// StartingTransfer: Node begins a transfer.
	StartingTransfer struct {
		Node     *Node
		Transfer *Transfer
		Effect   *effects.Transfer
	}
	// CancellingTransfer: Node requests that a transfer be cancelled.
	CancellingTransfer struct {
		Node     *Node
		Transfer *Transfer
	}
	// StartingCopy: Node begins a copy between pages of its own.
	StartingCopy struct {
		Node *Node
		Copy *Copy
	}
	// SendingPages: Node sends the content of pages, which are not read yet.
	SendingPages struct {
		Node   *Node
		Effect *effects.Send
	}
	// StoringCarried: Node is about to store received bytes into a page.
	StoringCarried struct {
		Node   *Node
		Effect *effects.Store
	}
	// ScatteringChunks: Node passes chunks to the engine's device code.
	ScatteringChunks struct {
		Node   *Node
		Effect *effects.Scatter
	}
	// FactObserved: Node's machine states a fact.
	FactObserved struct {
		Node   *Node
		Effect *effects.Observe
	}
	// TransferSubmitted: the plane submits a transfer to the device.
	TransferSubmitted struct {
		Node     *Node
		Transfer *Transfer
	}
	// StoreInFlight: a store to a pair's page is in flight and may land at any time.
	StoreInFlight struct {
		Transfer *Transfer
		Pair     int
	}
	// StoreFinished: a store that was in flight cannot land any more.
	StoreFinished struct {
		Transfer *Transfer
		Pair     int
	}
	// HalfStored: half of a pair's page is written.
	HalfStored struct {
		Transfer   *Transfer
		Pair, Half int
	}
	// PageCopied: all of a pair's page was copied, and the source was unchanged afterwards.
	PageCopied struct {
		Transfer *Transfer
		Pair     int
	}
	// TransferLanded: all of a transfer that will land has landed.
	TransferLanded struct {
		Transfer *Transfer
	}
	// PageLoaded: a pair's page is read.
	PageLoaded struct {
		Transfer *Transfer
		Pair     int
	}
	// PageRead: a pair's page was read as a whole and may be delivered.
	PageRead struct {
		Transfer *Transfer
		Pair     int
	}
	// SumCompared: a driver compared a pair's page with the checksum that the source stated.
	SumCompared struct {
		Node     *Node
		Transfer *Transfer
		Pair     int
		Same     bool
	}
	// PageVerified: a driver compared a page with its checksum because the machine asked for it.
	PageVerified struct {
		Node *Node
		Page effects.Page
		Same bool
	}
	// GrantUnmapped: the pages of a grant cannot be reached by its peer any more.
	GrantUnmapped struct {
		Node  *Node
		Grant effects.GrantID
	}
	// CopyMoving: a copy moves bytes.
	CopyMoving struct {
		Copy *Copy
		Pair effects.CopyPair
	}
	// BatchSubmitted: a batch of a transfer is submitted on a communicator.
	BatchSubmitted struct {
		Node     *Node
		Link     *Link
		Transfer *Transfer
		Batch    CommBatch
	}
	// EpochMessage: a communicator's machine sends a message to its peer.
	EpochMessage struct {
		Link *Link
		Say  communicator.Message
	}
	// EpochEvent: a communicator's machine is about to receive an event.
	EpochEvent struct {
		Node  *Node
		Link  *Link
		Event *communicator.Event
	}
	// EpochIdle: a communicator's machine has no more work now.
	EpochIdle struct {
		Link *Link
	}
	// EpochTransferDone: a communicator reports how a transfer ended.
	EpochTransferDone struct {
		Link     *Link
		Transfer *Transfer
		Post     communicator.Post
	}
	// EpochTransferSettled: a communicator reports that a transfer touches no page any more.
	EpochTransferSettled struct {
		Link     *Link
		Transfer *Transfer
	}
	// EpochGrantRevoked: a grant is revoked for every communicator.
	EpochGrantRevoked struct {
		Node   *Node
		Revoke *CommRevoke
	}
	// ChannelClosed: the channel of a communicator is closed.
	ChannelClosed struct {
		Link *Link
	}
)

// The declarations of the happenings that a world reports.
var (
	OnNodeStarted          = oracle.NewHappening[NodeStarted]()
	OnSteppingMachine      = oracle.NewHappening[SteppingMachine]()
	OnForbiddenMessage     = oracle.NewHappening[ForbiddenMessage]()
	OnForbiddenEnded       = oracle.NewHappening[ForbiddenEnded]()
	OnEffectEmitted        = oracle.NewHappening[EffectEmitted]()
	OnNodeRestarted        = oracle.NewHappening[NodeRestarted]()
	OnNodeAtRest           = oracle.NewHappening[NodeAtRest]()
	OnMessageReceived      = oracle.NewHappening[MessageReceived]()
	OnReplyReceived        = oracle.NewHappening[ReplyReceived]()
	OnReplyAfterClose      = oracle.NewHappening[ReplyAfterClose]()
	OnServerUnreachable    = oracle.NewHappening[ServerUnreachable]()
	OnUnreachableReported  = oracle.NewHappening[UnreachableReported]()
	OnConnLost             = oracle.NewHappening[ConnLost]()
	OnImportEnded          = oracle.NewHappening[ImportEnded]()
	OnLinkLost             = oracle.NewHappening[LinkLost]()
	OnTransferDone         = oracle.NewHappening[TransferDone]()
	OnTransferSettled      = oracle.NewHappening[TransferSettled]()
	OnCopySettled          = oracle.NewHappening[CopySettled]()
	OnGrantRevoked         = oracle.NewHappening[GrantRevoked]()
	OnScatterEnded         = oracle.NewHappening[ScatterEnded]()
	OnLandingReported      = oracle.NewHappening[LandingReported]()
	OnOpeningConn          = oracle.NewHappening[OpeningConn]()
	OnSendingRequest       = oracle.NewHappening[SendingRequest]()
	OnSendingReply         = oracle.NewHappening[SendingReply]()
	OnImportingPeer        = oracle.NewHappening[ImportingPeer]()
	OnPublishingPages      = oracle.NewHappening[PublishingPages]()
	OnGrantingPages        = oracle.NewHappening[GrantingPages]()
	OnLeasingPages         = oracle.NewHappening[LeasingPages]()
	OnStartingTransfer     = oracle.NewHappening[StartingTransfer]()
	OnCancellingTransfer   = oracle.NewHappening[CancellingTransfer]()
	OnStartingCopy         = oracle.NewHappening[StartingCopy]()
	OnSendingPages         = oracle.NewHappening[SendingPages]()
	OnStoringCarried       = oracle.NewHappening[StoringCarried]()
	OnScatteringChunks     = oracle.NewHappening[ScatteringChunks]()
	OnFactObserved         = oracle.NewHappening[FactObserved]()
	OnTransferSubmitted    = oracle.NewHappening[TransferSubmitted]()
	OnStoreInFlight        = oracle.NewHappening[StoreInFlight]()
	OnStoreFinished        = oracle.NewHappening[StoreFinished]()
	OnHalfStored           = oracle.NewHappening[HalfStored]()
	OnPageCopied           = oracle.NewHappening[PageCopied]()
	OnTransferLanded       = oracle.NewHappening[TransferLanded]()
	OnPageLoaded           = oracle.NewHappening[PageLoaded]()
	OnPageRead             = oracle.NewHappening[PageRead]()
	OnSumCompared          = oracle.NewHappening[SumCompared]()
	OnPageVerified         = oracle.NewHappening[PageVerified]()
	OnGrantUnmapped        = oracle.NewHappening[GrantUnmapped]()
	OnCopyMoving           = oracle.NewHappening[CopyMoving]()
	OnBatchSubmitted       = oracle.NewHappening[BatchSubmitted]()
	OnEpochMessage         = oracle.NewHappening[EpochMessage]()
	OnEpochEvent           = oracle.NewHappening[EpochEvent]()
	OnEpochIdle            = oracle.NewHappening[EpochIdle]()
	OnEpochTransferDone    = oracle.NewHappening[EpochTransferDone]()
	OnEpochTransferSettled = oracle.NewHappening[EpochTransferSettled]()
	OnEpochGrantRevoked    = oracle.NewHappening[EpochGrantRevoked]()
	OnChannelClosed        = oracle.NewHappening[ChannelClosed]()
)
