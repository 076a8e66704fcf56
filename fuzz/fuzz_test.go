package fuzz

import "testing"

func FuzzSharedLog(f *testing.F)           { SharedLog.Fuzz(f) }
func FuzzAgentAttach(f *testing.F)         { AgentAttach.Fuzz(f) }
func FuzzAgentCall(f *testing.F)           { AgentCall.Fuzz(f) }
func FuzzAgentFrames(f *testing.F)         { AgentFrames.Fuzz(f) }
func FuzzAllocRequest(f *testing.F)        { AllocRequest.Fuzz(f) }
func FuzzAllocResponse(f *testing.F)       { AllocResponse.Fuzz(f) }
func FuzzCacheQueryRequest(f *testing.F)   { CacheQueryRequest.Fuzz(f) }
func FuzzCacheQueryResponse(f *testing.F)  { CacheQueryResponse.Fuzz(f) }
func FuzzControllerControl(f *testing.F)   { ControllerControl.Fuzz(f) }
func FuzzControllerFeed(f *testing.F)      { ControllerFeed.Fuzz(f) }
func FuzzControllerJSON(f *testing.F)      { ControllerJSON.Fuzz(f) }
func FuzzControllerLookup(f *testing.F)    { ControllerLookup.Fuzz(f) }
func FuzzControllerSync(f *testing.F)      { ControllerSync.Fuzz(f) }
func FuzzControllerWorkers(f *testing.F)   { ControllerWorkers.Fuzz(f) }
func FuzzEndpoint(f *testing.F)            { Endpoint.Fuzz(f) }
func FuzzHixlInitRequest(f *testing.F)     { HixlInitRequest.Fuzz(f) }
func FuzzHixlInitResponse(f *testing.F)    { HixlInitResponse.Fuzz(f) }
func FuzzHixlMemInfoRequest(f *testing.F)  { HixlMemInfoRequest.Fuzz(f) }
func FuzzHixlMemInfoResponse(f *testing.F) { HixlMemInfoResponse.Fuzz(f) }
func FuzzHixlReadyRequest(f *testing.F)    { HixlReadyRequest.Fuzz(f) }
func FuzzHixlReadyResponse(f *testing.F)   { HixlReadyResponse.Fuzz(f) }
func FuzzKey(f *testing.F)                 { Key.Fuzz(f) }
func FuzzMemory(f *testing.F)              { Memory.Fuzz(f) }
func FuzzNixl(f *testing.F)                { Nixl.Fuzz(f) }
func FuzzP2PDone(f *testing.F)             { P2PDone.Fuzz(f) }
func FuzzP2PGet(f *testing.F)              { P2PGet.Fuzz(f) }
func FuzzP2POther(f *testing.F)            { P2POther.Fuzz(f) }
func FuzzPeekTag(f *testing.F)             { PeekTag.Fuzz(f) }
func FuzzProxyNotif(f *testing.F)          { ProxyNotif.Fuzz(f) }
func FuzzPullDoneSignal(f *testing.F)      { PullDoneSignal.Fuzz(f) }
func FuzzPullID(f *testing.F)              { PullID.Fuzz(f) }
func FuzzPullReadyDoneAck(f *testing.F)    { PullReadyDoneAck.Fuzz(f) }
func FuzzPullReadyNotif(f *testing.F)      { PullReadyNotif.Fuzz(f) }
func FuzzEndRequest(f *testing.F)          { EndRequest.Fuzz(f) }
func FuzzEndResponse(f *testing.F)         { EndResponse.Fuzz(f) }
func FuzzRenewRequest(f *testing.F)        { RenewRequest.Fuzz(f) }
func FuzzRenewResponse(f *testing.F)       { RenewResponse.Fuzz(f) }
