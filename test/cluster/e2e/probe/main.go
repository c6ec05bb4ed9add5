// Command probe is what the end-to-end test runs in pods: an HTTP server that
// tells its name, asks another URL, looks a name up, and reads a file from a
// volume. "write CONTENT" writes that file.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	file         = "/data/file" // on the pod's volume
	requestLimit = 3 * time.Second
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "write" {
		if err := os.WriteFile(file, []byte(os.Args[2]), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	http.HandleFunc("GET /name", func(w http.ResponseWriter, _ *http.Request) { answer(w)(os.Hostname()) })
	http.HandleFunc("GET /fetch", func(w http.ResponseWriter, r *http.Request) { answer(w)(fetch(r.Context(), r.FormValue("url"))) })
	http.HandleFunc("GET /lookup", func(w http.ResponseWriter, r *http.Request) {
		all, err := net.DefaultResolver.LookupHost(r.Context(), r.FormValue("name"))
		answer(w)(fmt.Sprint(all), err)
	})
	http.HandleFunc("GET /file", func(w http.ResponseWriter, _ *http.Request) {
		raw, err := os.ReadFile(file)
		answer(w)(string(raw), err)
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: requestLimit}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("listening") // the test reads the pod's log
	if err := server.ListenAndServe(); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// answer writes a result, or an error with status 500.
func answer(w http.ResponseWriter) func(string, error) {
	return func(s string, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, s)
	}
}

func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	// A connection per request, so that a Service chooses each time.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	return string(raw), err
}
