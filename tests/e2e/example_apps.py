"""The examples for the tests over sockets: without a pace, and slow enough to be interrupted."""

from turnlog.agents.retry import RetryPolicy
from turnlog_examples import assistant, pipeline
from turnlog_examples.pipeline.archive import Claim

AT_ONCE = RetryPolicy(initial_delay_s=0.0)
OWN = {
    "tin": (Claim("Tin melts before lead does."), Claim("Tin cans are made of tin.", "They are of steel.")),
    "zinc": (Claim("Zinc is a metal."),),
}

fast_pipeline = pipeline.make_app()
slow_pipeline = pipeline.make_app(pace_s=0.03)
own_pipeline = pipeline.make_app(archive=OWN)

fast_assistant = assistant.make_app(patience=AT_ONCE)
slow_assistant = assistant.make_app(pace_s=0.03, patience=AT_ONCE)
