// Package e2e runs the whole of Rollcall as its users do, on the demo that
// test/demo/demo.sh brings up: argo and kubectl as commands, a real API server,
// real pods, and a real chain that is asked what it did.
//
//	ROLLCALL_CLUSTER=e2e test/demo/demo.sh up
//	eval "$(ROLLCALL_CLUSTER=e2e make -s env)"
//	go test -tags e2e -count=1 -timeout 30m -v ./test/e2e [-whole]
//
// It shows that the set of validators goes from the demo's 5 to 7 to 4 to 7 while the chain
// goes on, that a wrong request changes nothing and says what is wrong, that two
// runs are never at work at once, and that no key is seen anywhere. The
// scenarios run in order and share the state of the network; each brings the
// network to where it begins, so one can be run alone with -run. A table of what
// was seen is printed at the end.
//
// It doesn't bring the cluster up or down, and it leaves the network as the last
// scenario left it. It must be the only user of the network while it runs.
package e2e
