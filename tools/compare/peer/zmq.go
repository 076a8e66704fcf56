//go:build cgo && linux && libzmq

package main

import (
	"encoding/json"
	"errors"

	zmq4 "github.com/pebbe/zmq4"
)

func init() {
	kinds["libzmq-trip"] = kind{newZMQTarget, newZMQInitiator}
}

// A zmqTarget answers requests at a REP socket of libzmq, which is the transport of LMCache's control messages.
type zmqTarget struct{ socket *zmq4.Socket }

func newZMQTarget(Setup) (target, error) {
	s, err := zmq4.NewSocket(zmq4.REP)
	if err != nil {
		return nil, err
	}
	return &zmqTarget{s}, s.Bind("tcp://127.0.0.1:*")
}

func (t *zmqTarget) connectInfo() (json.RawMessage, error) {
	address, err := t.socket.GetLastEndpoint()
	if err != nil {
		return nil, err
	}
	return json.Marshal(address)
}

func (t *zmqTarget) takeMoves(w Work) error {
	for range w.Moves {
		b, err := t.socket.RecvBytes(0)
		if err != nil {
			return err
		}
		if _, err := t.socket.SendBytes(b, 0); err != nil {
			return err
		}
	}
	return nil
}

type zmqInitiator struct{ socket *zmq4.Socket }

func newZMQInitiator(_ Setup, connectInfo json.RawMessage) (initiator, error) {
	var address string
	s, err := zmq4.NewSocket(zmq4.REQ)
	if err := errors.Join(err, json.Unmarshal(connectInfo, &address)); err != nil {
		return nil, err
	}
	return &zmqInitiator{s}, s.Connect(address)
}

func (*zmqInitiator) pickChunks(int) {}

func (x *zmqInitiator) moveChunks(int) error {
	if _, err := x.socket.SendBytes(make([]byte, 64), 0); err != nil {
		return err
	}
	_, err := x.socket.RecvBytes(0)
	return err
}
