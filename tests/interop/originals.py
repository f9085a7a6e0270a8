"""Small foreign models of every family, with odd sizes and random weights, saved as their own library saves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = ["we are eating bread and the dog sees a small cat", "The animal didn't cross the street; it was tired."] * 3
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
PAD, UNKNOWN, START, STOP, MASK = range(5)
SIZE = 307  # tokens of the tokenizer
LABELS = {0: "no", 1: "perhaps", 2: "yes"}

DECODER = {"hidden_size": 42, "num_attention_heads": 6, "num_hidden_layers": 3, "intermediate_size": 53}
DECODER |= {"max_position_embeddings": 61, "bos_token_id": START, "eos_token_id": STOP, "pad_token_id": None}
EVEN = DECODER | {"num_key_value_heads": 2, "hidden_size": 36}
GROUPED = DECODER | {"num_key_value_heads": 2, "head_dim": 10}
ENCODER = {"hidden_size": 42, "num_attention_heads": 6, "num_hidden_layers": 3, "intermediate_size": 53}
ENCODER |= {"max_position_embeddings": 61, "pad_token_id": PAD, "hidden_act": "gelu", "layer_norm_eps": 1e-3}
SEQ2SEQ = {"d_model": 42, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 6}
SEQ2SEQ |= {"decoder_attention_heads": 6, "encoder_ffn_dim": 53, "decoder_ffn_dim": 53, "max_position_embeddings": 61}
SEQ2SEQ |= {"pad_token_id": PAD, "eos_token_id": STOP, "bos_token_id": START, "decoder_start_token_id": PAD}
SEQ2SEQ |= {"forced_eos_token_id": None}
IMAGE = {"hidden_size": 42, "num_attention_heads": 6, "num_hidden_layers": 3, "intermediate_size": 53}
IMAGE |= {"image_size": 21, "patch_size": 7, "num_channels": 3, "layer_norm_eps": 1e-3, "id2label": LABELS}
SHARDED = {"max_shard_size": "30KB"}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True)
class Original:
    """A class of transformers, and its configuration."""

    kind: str  # LlamaForCausalLM
    config: str  # LlamaConfig
    settings: dict[str, Any]
    task: str
    engine: bool = True  # its steps have native code, once the model is small enough to compile for
    more: dict[str, Any] = field(default_factory=dict)  # arguments of save_pretrained
    vocabulary: int = SIZE + 4  # rows of the embedding: more than the tokenizer has tokens

    def build(self, seed: int = 1) -> Any:
        """The model with weights as of a trained one: a fresh one has zero biases, and almost even attention."""
        import transformers

        torch.manual_seed(seed)
        sizes = {} if self.task == "vision" else {"vocab_size": self.vocabulary}
        config = getattr(transformers, self.config)(**sizes, **self.settings)
        model = getattr(transformers, self.kind)(config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    noise = torch.randn_like(weight)
                    weight.copy_(weight + 0.2 * noise if weight.dim() == 1 else 1.5 * noise * weight[0].numel() ** -0.5)
        return model

    def save(self, folder: Path, seed: int = 1) -> Any:
        """Save the model and its tokenizer; returns the model."""
        model = self.build(seed)
        if getattr(model, "generation_config", None) is not None:
            model.generation_config = type(model.generation_config).from_model_config(model.config)
        model.save_pretrained(folder, **self.more)
        if self.task != "vision":
            save_tokenizer(folder, surrounded=self.task not in ("lm", "translate"), ended=self.task == "translate")
        return model


@cache
def library(surrounded: bool, ended: bool) -> Tokenizer:
    """A byte-level tokenizer, whose texts may stand between <s> and </s> or end with </s>."""
    made = Tokenizer(models.BPE(unk_token=None))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=SIZE, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False),
    )
    if surrounded or ended:
        before = "<s> " if surrounded else ""
        made.post_processor = processors.TemplateProcessing(
            single=f"{before}$A </s>", pair=f"{before}$A </s> $B </s>", special_tokens=[("<s>", START), ("</s>", STOP)]
        )
    return made


def save_tokenizer(folder: Path, surrounded: bool = False, ended: bool = False) -> None:
    import transformers

    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library(surrounded, ended),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
    )
    fast.save_pretrained(folder)


def encoders(name: str, config: str, settings: dict[str, Any]) -> dict[str, Original]:
    """An encoder with each of its heads."""
    labelled = settings | {"id2label": LABELS}
    return {
        f"{name}": Original(f"{config}Model", f"{config}Config", settings, "embed"),
        f"{name} masked": Original(f"{config}ForMaskedLM", f"{config}Config", settings, "masked_lm"),
        f"{name} classify": Original(f"{config}ForSequenceClassification", f"{config}Config", labelled, "classify"),
        f"{name} tag": Original(f"{config}ForTokenClassification", f"{config}Config", labelled, "tag"),
    }


GPT2 = {"n_embd": 42, "n_head": 6, "n_layer": 3, "n_positions": 61, "n_inner": 53, "layer_norm_epsilon": 1e-3}
GPT2 |= {"bos_token_id": START, "eos_token_id": STOP, "pad_token_id": None}
BLOOM = {"hidden_size": 42, "n_head": 6, "n_layer": 3, "layer_norm_epsilon": 1e-3}
BLOOM |= {"bos_token_id": START, "eos_token_id": STOP, "pad_token_id": None}
T5 = {"d_model": 42, "d_kv": 5, "num_heads": 6, "num_layers": 3, "num_decoder_layers": 2, "d_ff": 53}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 19, "pad_token_id": PAD}
T5 |= {"eos_token_id": STOP, "decoder_start_token_id": PAD, "layer_norm_epsilon": 1e-3}
GEMMA = GROUPED | {"query_pre_attn_scalar": 13, "sliding_window": 5, "rms_norm_eps": 1e-3}
GEMMA |= {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "pad_token_id": PAD}
GEMMA |= {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 700.0, "factor": 3.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    }
}
PART = {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 1.0}
YARN = {"rope_type": "yarn", "rope_theta": 300.0, "factor": 3.0, "original_max_position_embeddings": 20}
LONG = {"rope_type": "longrope", "rope_theta": 300.0, "original_max_position_embeddings": 40}
LONG |= {"short_factor": [1.0, 1.5, 2.0, 3.5], "long_factor": [2.0, 3.0, 5.0, 7.0]}
GEMMA2 = {name: value for name, value in GEMMA.items() if name not in ("rope_parameters", "layer_types")}
GEMMA2 |= {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
OPT = {"hidden_size": 42, "num_attention_heads": 6, "num_hidden_layers": 3, "ffn_dim": 53, "word_embed_proj_dim": 42}
OPT |= {"max_position_embeddings": 61, "bos_token_id": START, "eos_token_id": STOP, "pad_token_id": UNKNOWN}
GPT_NEO = {"hidden_size": 42, "num_layers": 3, "num_heads": 6, "window_size": 5, "max_position_embeddings": 61}
GPT_NEO |= {"attention_types": [[["global", "local"], 1], [["global"], 1]], "bos_token_id": START, "eos_token_id": STOP}
GPTJ = {"n_embd": 48, "n_head": 6, "n_layer": 3, "n_positions": 61, "rotary_dim": 4, "n_inner": 53}
GPTJ |= {"bos_token_id": START, "eos_token_id": STOP}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 5.0, "residual_multiplier": 0.7}
GRANITE |= {"attention_multiplier": 0.3, "tie_word_embeddings": True}
FALCON = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 3, "max_position_embeddings": 61}
FALCON |= {"bos_token_id": START, "eos_token_id": STOP}
MODERN = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 4, "intermediate_size": 53}
MODERN |= {"max_position_embeddings": 61, "local_attention": 6, "norm_eps": 1e-3, "pad_token_id": PAD}
MODERN |= {"bos_token_id": START, "eos_token_id": STOP, "cls_token_id": START, "sep_token_id": STOP}

ORIGINALS = {
    "llama": Original("LlamaForCausalLM", "LlamaConfig", GROUPED | {"rms_norm_eps": 1e-3}, "lm"),
    "llama tied, sharded": Original(
        "LlamaForCausalLM",
        "LlamaConfig",
        GROUPED | {"tie_word_embeddings": True},
        "lm",
        more={"max_shard_size": "30KB"},
    ),
    "llama 3": Original(
        "LlamaForCausalLM",
        "LlamaConfig",
        GROUPED | {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 17}, "attention_bias": True},
        "lm",
    ),
    "llama yarn": Original("LlamaForCausalLM", "LlamaConfig", GROUPED | {"rope_parameters": YARN}, "lm"),
    "mistral": Original("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 7}, "lm"),
    "qwen2": Original(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        {**EVEN, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
        "lm",
        engine=False,
    ),
    "qwen3": Original("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"rms_norm_eps": 1e-3}, "lm", engine=False),
    "gemma 3": Original("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA, "lm", engine=False),
    "phi3": Original("Phi3ForCausalLM", "Phi3Config", EVEN | {"sliding_window": 7, "pad_token_id": PAD}, "lm"),
    "phi3 long": Original(
        "Phi3ForCausalLM",
        "Phi3Config",
        {
            **DECODER,
            **{"hidden_size": 48, "num_key_value_heads": 3, "pad_token_id": PAD, "max_position_embeddings": 160},
            **{"original_max_position_embeddings": 40, "rope_parameters": LONG},
        },
        "lm",
    ),
    "gpt2": Original("GPT2LMHeadModel", "GPT2Config", GPT2, "lm", engine=False),
    "gpt2 untied": Original(
        "GPT2LMHeadModel", "GPT2Config", GPT2 | {"tie_word_embeddings": False, "activation_function": "relu"}, "lm"
    ),
    "gpt_neox": Original(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {
            **DECODER,
            "hidden_size": 48,
            "layer_norm_eps": 1e-3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5},
        },
        "lm",
        engine=False,
    ),
    "gpt_neox in turn": Original(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {
            **DECODER,
            "hidden_size": 48,
            "use_parallel_residual": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 1.0},
        },
        "lm",
    ),
    "gemma": Original("GemmaForCausalLM", "GemmaConfig", GROUPED | {"pad_token_id": PAD}, "lm", engine=False),
    "gemma2": Original("Gemma2ForCausalLM", "Gemma2Config", GEMMA2, "lm", engine=False),
    "opt": Original("OPTForCausalLM", "OPTConfig", OPT, "lm"),
    "opt after": Original("OPTForCausalLM", "OPTConfig", OPT | {"do_layer_norm_before": False}, "lm"),
    "gpt_neo": Original("GPTNeoForCausalLM", "GPTNeoConfig", GPT_NEO, "lm", engine=False),
    "phi": Original(
        "PhiForCausalLM",
        "PhiConfig",
        DECODER | {"hidden_size": 48, "rope_parameters": PART | {"partial_rotary_factor": 0.5}},
        "lm",
        engine=False,
    ),
    "gptj": Original("GPTJForCausalLM", "GPTJConfig", GPTJ, "lm", engine=False),
    "stablelm": Original("StableLmForCausalLM", "StableLmConfig", EVEN | {"rope_parameters": PART}, "lm"),
    "stablelm side by side": Original(
        "StableLmForCausalLM",
        "StableLmConfig",
        EVEN | {"hidden_size": 48, "use_parallel_residual": True, "use_qkv_bias": True},
        "lm",
        engine=False,
    ),
    "starcoder2": Original(
        "Starcoder2ForCausalLM", "Starcoder2Config", EVEN | {"sliding_window": 7}, "lm", engine=False
    ),
    "granite": Original("GraniteForCausalLM", "GraniteConfig", EVEN | GRANITE, "lm"),
    "olmo": Original("OlmoForCausalLM", "OlmoConfig", EVEN, "lm"),
    "olmo2": Original("Olmo2ForCausalLM", "Olmo2Config", EVEN | {"rms_norm_eps": 1e-3}, "lm", engine=False),
    "falcon": Original("FalconForCausalLM", "FalconConfig", FALCON, "lm", engine=False),
    "falcon in turn": Original(
        "FalconForCausalLM",
        "FalconConfig",
        FALCON | {"multi_query": False, "parallel_attn": False, "bias": True},
        "lm",
    ),
    "falcon 40b": Original(
        "FalconForCausalLM",
        "FalconConfig",
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
        "lm",
        engine=False,
    ),
    "gpt_bigcode": Original("GPTBigCodeForCausalLM", "GPTBigCodeConfig", GPT2, "lm", engine=False),
    "bloom": Original("BloomForCausalLM", "BloomConfig", BLOOM, "lm", engine=False),
    "llama classify": Original(
        "LlamaForSequenceClassification", "LlamaConfig", GROUPED | {"id2label": LABELS}, "classify"
    ),
    "gemma 3 classify": Original(
        "Gemma3TextForSequenceClassification", "Gemma3TextConfig", GEMMA | {"id2label": LABELS}, "classify"
    ),
    "gpt2 classify": Original("GPT2ForSequenceClassification", "GPT2Config", GPT2 | {"id2label": LABELS}, "classify"),
    "bloom classify": Original(
        "BloomForSequenceClassification", "BloomConfig", BLOOM | {"id2label": LABELS}, "classify"
    ),
    **encoders("bert", "Bert", ENCODER | {"type_vocab_size": 2}),
    **encoders("roberta", "Roberta", ENCODER | {"type_vocab_size": 1, "max_position_embeddings": 63}),
    "xlm_roberta": Original(
        "XLMRobertaForMaskedLM", "XLMRobertaConfig", ENCODER | {"type_vocab_size": 1}, "masked_lm", engine=False
    ),
    "camembert": Original(
        "CamembertForTokenClassification", "CamembertConfig", ENCODER | {"id2label": LABELS}, "tag", engine=False
    ),
    **encoders("electra", "Electra", ENCODER | {"embedding_size": 23}),
    **encoders("albert", "Albert", ENCODER | {"embedding_size": 23, "hidden_act": "gelu_new"}),
    **encoders(
        "distilbert",
        "DistilBert",
        {"dim": 42, "n_heads": 6, "n_layers": 3, "hidden_dim": 53, "max_position_embeddings": 61, "pad_token_id": PAD},
    ),
    **encoders("mpnet", "MPNet", ENCODER | {"max_position_embeddings": 63, "pad_token_id": UNKNOWN}),
    **encoders("modernbert", "ModernBert", MODERN),
    "vit": Original("ViTForImageClassification", "ViTConfig", IMAGE, "vision"),
    "dinov2": Original(
        "Dinov2ForImageClassification", "Dinov2Config", IMAGE | {"mlp_ratio": 2, "layerscale_value": 0.7}, "vision"
    ),
    "deit": Original("DeiTForImageClassification", "DeiTConfig", IMAGE | {"qkv_bias": False}, "vision"),
    "t5": Original("T5ForConditionalGeneration", "T5Config", T5, "translate"),
    "t5 gated": Original(
        "T5ForConditionalGeneration",
        "T5Config",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        "translate",
        engine=False,
    ),
    "mt5": Original("MT5ForConditionalGeneration", "MT5Config", T5, "translate", engine=False),
    "mbart": Original("MBartForConditionalGeneration", "MBartConfig", SEQ2SEQ, "translate", engine=False),
    "pegasus": Original("PegasusForConditionalGeneration", "PegasusConfig", SEQ2SEQ, "translate"),
    "marian": Original(
        "MarianMTModel",
        "MarianConfig",
        SEQ2SEQ | {"scale_embedding": True, "activation_function": "swish"},
        "translate",
        engine=False,
    ),
    "bart": Original("BartForConditionalGeneration", "BartConfig", SEQ2SEQ, "translate", engine=False),
    "m2m_100": Original(
        "M2M100ForConditionalGeneration",
        "M2M100Config",
        SEQ2SEQ | {"scale_embedding": True, "pad_token_id": 1, "decoder_start_token_id": STOP},
        "translate",
    ),
}
