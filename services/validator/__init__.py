"""The validator: the target model, the acceptance rule, the verdict."""
