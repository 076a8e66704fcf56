package fuzz

import (
	"slices"
	"strings"
	"testing"
)

func FuzzSharedLog(f *testing.F)                      { SharedLog.Fuzz(f) }
func FuzzAgentAttach(f *testing.F)                    { AgentAttach.Fuzz(f) }
func FuzzAgentCall(f *testing.F)                      { AgentCall.Fuzz(f) }
func FuzzAgentFrames(f *testing.F)                    { AgentFrames.Fuzz(f) }
func FuzzAllocRequest(f *testing.F)                   { AllocRequest.Fuzz(f) }
func FuzzAllocResponse(f *testing.F)                  { AllocResponse.Fuzz(f) }
func FuzzCacheQueryRequest(f *testing.F)              { CacheQueryRequest.Fuzz(f) }
func FuzzCacheQueryResponse(f *testing.F)             { CacheQueryResponse.Fuzz(f) }
func FuzzControllerControl(f *testing.F)              { ControllerControl.Fuzz(f) }
func FuzzControllerFeed(f *testing.F)                 { ControllerFeed.Fuzz(f) }
func FuzzControllerJSON(f *testing.F)                 { ControllerJSON.Fuzz(f) }
func FuzzControllerLookup(f *testing.F)               { ControllerLookup.Fuzz(f) }
func FuzzControllerSync(f *testing.F)                 { ControllerSync.Fuzz(f) }
func FuzzControllerWorkers(f *testing.F)              { ControllerWorkers.Fuzz(f) }
func FuzzDifferentialAllocRequest(f *testing.F)       { DifferentialAllocRequest.Fuzz(f) }
func FuzzDifferentialAllocResponse(f *testing.F)      { DifferentialAllocResponse.Fuzz(f) }
func FuzzDifferentialCacheQueryRequest(f *testing.F)  { DifferentialCacheQueryRequest.Fuzz(f) }
func FuzzDifferentialCacheQueryResponse(f *testing.F) { DifferentialCacheQueryResponse.Fuzz(f) }
func FuzzDifferentialControllerFeed(f *testing.F)     { DifferentialControllerFeed.Fuzz(f) }
func FuzzDifferentialP2PGet(f *testing.F)             { DifferentialP2PGet.Fuzz(f) }
func FuzzDifferentialP2PGetReply(f *testing.F)        { DifferentialP2PGetReply.Fuzz(f) }
func FuzzDifferentialPullDoneSignal(f *testing.F)     { DifferentialPullDoneSignal.Fuzz(f) }
func FuzzDifferentialPullReadyDoneAck(f *testing.F)   { DifferentialPullReadyDoneAck.Fuzz(f) }
func FuzzDifferentialPullReadyNotif(f *testing.F)     { DifferentialPullReadyNotif.Fuzz(f) }
func FuzzDifferentialEndRequest(f *testing.F)         { DifferentialEndRequest.Fuzz(f) }
func FuzzDifferentialRenewRequest(f *testing.F)       { DifferentialRenewRequest.Fuzz(f) }
func FuzzDifferentialRenewResponse(f *testing.F)      { DifferentialRenewResponse.Fuzz(f) }
func FuzzEndpoint(f *testing.F)                       { Endpoint.Fuzz(f) }
func FuzzHixlInitRequest(f *testing.F)                { HixlInitRequest.Fuzz(f) }
func FuzzHixlInitResponse(f *testing.F)               { HixlInitResponse.Fuzz(f) }
func FuzzHixlMemInfoRequest(f *testing.F)             { HixlMemInfoRequest.Fuzz(f) }
func FuzzHixlMemInfoResponse(f *testing.F)            { HixlMemInfoResponse.Fuzz(f) }
func FuzzHixlReadyRequest(f *testing.F)               { HixlReadyRequest.Fuzz(f) }
func FuzzHixlReadyResponse(f *testing.F)              { HixlReadyResponse.Fuzz(f) }
func FuzzKey(f *testing.F)                            { Key.Fuzz(f) }
func FuzzMemory(f *testing.F)                         { Memory.Fuzz(f) }
func FuzzNixl(f *testing.F)                           { Nixl.Fuzz(f) }
func FuzzP2PDone(f *testing.F)                        { P2PDone.Fuzz(f) }
func FuzzP2PGet(f *testing.F)                         { P2PGet.Fuzz(f) }
func FuzzP2POther(f *testing.F)                       { P2POther.Fuzz(f) }
func FuzzPeekTag(f *testing.F)                        { PeekTag.Fuzz(f) }
func FuzzProxyNotif(f *testing.F)                     { ProxyNotif.Fuzz(f) }
func FuzzPullDoneSignal(f *testing.F)                 { PullDoneSignal.Fuzz(f) }
func FuzzPullID(f *testing.F)                         { PullID.Fuzz(f) }
func FuzzPullReadyDoneAck(f *testing.F)               { PullReadyDoneAck.Fuzz(f) }
func FuzzPullReadyNotif(f *testing.F)                 { PullReadyNotif.Fuzz(f) }
func FuzzEndRequest(f *testing.F)                     { EndRequest.Fuzz(f) }
func FuzzEndResponse(f *testing.F)                    { EndResponse.Fuzz(f) }
func FuzzRenewRequest(f *testing.F)                   { RenewRequest.Fuzz(f) }
func FuzzRenewResponse(f *testing.F)                  { RenewResponse.Fuzz(f) }

// A target that is not among Targets is none for anybody else, and one without seeds begins with nothing.
func TestTargets(t *testing.T) {
	folders, err := corpora.ReadDir("seeds")
	if err != nil {
		t.Fatal(err)
	}
	var inFolders, named []string
	for _, f := range folders {
		inFolders = append(inFolders, f.Name())
	}
	for _, target := range Targets() {
		named = append(named, target.Name())
		if n := len(target.Seeds()); n < 4 {
			t.Errorf("%s has %d seeds", target.Name(), n)
		}
	}
	if !slices.Equal(named, inFolders) {
		t.Errorf("targets:\n%s\nfolders of seeds:\n%s", strings.Join(named, " "), strings.Join(inFolders, " "))
	}
}
