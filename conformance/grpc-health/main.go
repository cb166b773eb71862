// A gRPC server with the standard health service alone.
//
// usage: grpc-health PORT
//
// The service "shop" is SERVING. SIGUSR1 makes it NOT_SERVING, SIGUSR2 SERVING again.
package main

import (
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	service, server := health.NewServer(), grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, service)
	service.SetServingStatus("shop", grpc_health_v1.HealthCheckResponse_SERVING)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for received := range signals {
			status := grpc_health_v1.HealthCheckResponse_SERVING
			if received == syscall.SIGUSR1 {
				status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
			}
			service.SetServingStatus("shop", status)
		}
	}()
	log.Fatal(server.Serve(listener))
}
