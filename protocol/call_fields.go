package protocol

import "math/bits"

// What each operation takes beside id, done and op.
var callTakes = func() (of [callOps]uint64) {
	const (
		peer     = 1<<callHost | 1<<callInitPort | 1<<callAllocPort
		chunks   = 1<<callTarget | 1<<callFirst | 1<<callKeys
		patience = 1 << callPatience
		named    = 1<<callRequest | 1<<callTransfer
		blocks   = 1<<callBlocks | 1<<callGroups | 1<<callFirsts | 1<<callEnds
		shared   = 1<<callKeys | 1<<callRequest | 1<<callHost | 1<<callInitPort | patience
	)
	of = [callOps]uint64{
		CallReserve:        1<<callCount | patience,
		CallRelease:        1 << callTarget,
		CallAwaitReturn:    1<<callTarget | patience,
		CallAbort:          1 << callTarget,
		CallPut:            chunks | peer | patience | 1<<callRequest | 1<<callTokens | 1<<callLast,
		CallTakeBack:       1 << callTarget,
		CallRecall:         chunks | peer | patience | 1<<callRequest | 1<<callQueryPort,
		CallBeginPrefill:   peer | 1<<callKeys | 1<<callRequest | 1<<callSkip | 1<<callLayerTime,
		CallSaveLayer:      1<<callPrefill | 1<<callTarget | 1<<callLayer | 1<<callTokens,
		CallPreemptPrefill: 1 << callPrefill,
		CallFinishPrefill:  1<<callPrefill | patience,
		CallDropPrefill:    1 << callPrefill,
		CallGet:            1<<callKeys | 1<<callRequest | 1<<callLayered | patience,
		CallContains:       1 << callKeys,
		CallFetch:          1<<callKeys | 1<<callRequest | patience,
		CallAbandon:        1<<callRequest | 1<<callReason,
		CallStore:          chunks,
		CallShare:          chunks,
		CallWithdraw:       1<<callTarget | patience,
		CallLookup:         1 << callKeys,
		CallSharedGet:      shared,
		CallKeep:           shared,
		CallSharedFetch:    shared,
		CallRegister:       named | blocks | patience | 1<<callEngine | 1<<callProducers | 1<<callRanks | 1<<callStages,
		CallExpect:         named | patience | 1<<callProducers,
		CallNotNeeded:      named | patience | 1<<callProducers,
		CallFinished:       named | blocks | patience,
		CallAborted:        named,
		CallEnd:            peer | patience | 1<<callRequest | 1<<callCode | 1<<callReason,
	}
	for op := range of {
		of[op] |= 1<<callID | 1<<callDone | 1<<callOp | 1 // And the tag.
	}
	return of
}()

// Unfit names a field that the call has, and its operation does not take; empty if there is none. One that is zero is
// as good as absent.
func (m *EngineCall) Unfit() string {
	if extra := m.given() &^ callTakes[CallOpOf(m.Op)]; extra != 0 {
		return engineCallSchema.names[bits.TrailingZeros64(extra)]
	}
	return ""
}
