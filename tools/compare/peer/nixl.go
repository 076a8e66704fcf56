//go:build cgo && linux

package main

import (
	"encoding/json"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// mapMemory returns memory that does not move and that has been written once.
func mapMemory() ([]byte, error) {
	m, err := syscall.Mmap(-1, 0, total, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	for i := 0; i < len(m); i += 4096 {
		m[i] = byte(i >> 12)
	}
	return m, err
}

func openAgent(name, transports string) (*libnixl.Agent, uint64, error) {
	library, err := libnixl.Open(libnixl.Options{})
	if err != nil {
		return nil, 0, err
	}
	o := libnixl.AgentOptions{Name: name}
	if transports != "" {
		o.Params = map[string]string{"engine_config": "TLS=" + transports}
	}
	agent, err := library.NewAgent(o)
	if err != nil {
		return nil, 0, err
	}
	m, err := mapMemory()
	if err != nil {
		return nil, 0, err
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m))))
	_, err = agent.RegisterMemory(libnixl.Host, libnixl.Range{Address: base, Bytes: total})
	return agent, base, err
}

// A nixlAddress is the data that an initiator needs to reach a target over libnixl.
type nixlAddress struct {
	Metadata []byte `json:"metadata"`
	Base     uint64 `json:"base"`
}

type nixlTarget struct {
	agent *libnixl.Agent
	at    nixlAddress
}

func newNIXLTarget(transports string) func(Setup) (target, error) {
	return func(Setup) (target, error) {
		agent, base, err := openAgent("target", transports)
		if err != nil {
			return nil, err
		}
		metadata, err := agent.Metadata()
		return &nixlTarget{agent, nixlAddress{metadata, base}}, err
	}
}

func (t *nixlTarget) connectInfo() (json.RawMessage, error) { return json.Marshal(t.at) }

// takeMoves polls for a notice of each move, as an engine that waits for the chunks does.
func (t *nixlTarget) takeMoves(w Work) error {
	for got := 0; got < w.Moves; {
		notices, err := t.agent.PollNotices()
		if err != nil {
			return err
		}
		got += len(notices)
		runtime.Gosched()
	}
	return nil
}

type nixlInitiator struct {
	agent *libnixl.Agent
	base  uint64
	to    nixlAddress
	peer  string
	bytes int
	pairs []libnixl.Pair
}

func newNIXLInitiator(transports string) func(Setup, json.RawMessage) (initiator, error) {
	return func(s Setup, connectInfo json.RawMessage) (initiator, error) {
		x := &nixlInitiator{bytes: s.Bytes}
		err := json.Unmarshal(connectInfo, &x.to)
		if err != nil {
			return nil, err
		}
		if x.agent, x.base, err = openAgent("initiator", transports); err != nil {
			return nil, err
		}
		x.peer, err = x.agent.LoadMetadata(x.to.Metadata)
		return x, err
	}
}

func (x *nixlInitiator) pickChunks(chunks int) {
	from, into := uint64(drawFirst(x.bytes, chunks)*x.bytes), uint64(drawFirst(x.bytes, chunks)*x.bytes)
	x.pairs = x.pairs[:0]
	for i := range chunks {
		at := uint64(i * x.bytes)
		x.pairs = append(x.pairs, libnixl.Pair{Local: x.base + from + at, Remote: x.to.Base + into + at,
			Bytes: uint64(x.bytes)})
	}
}

func (x *nixlInitiator) moveChunks(int) error {
	t, err := x.agent.NewTransfer(libnixl.TransferOptions{Operation: libnixl.Write, Peer: x.peer, Pairs: x.pairs,
		Notice: []byte("moved")})
	if err != nil {
		return err
	}
	done, err := t.Post()
	for !done && err == nil {
		runtime.Gosched()
		done, err = t.Check()
	}
	if err != nil {
		return err
	}
	return t.Close()
}
